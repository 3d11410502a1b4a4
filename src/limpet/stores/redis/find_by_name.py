"""Walks the jobs that have something in common, a flow or a unique key, by their arrival."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from limpet.stores.redis.fields import HOLDER, ID_BYTES, RANGE, RECORD, SEQ_BYTES, SLOTS
from limpet.stores.redis.find_cursor import BLANK, Batches, Candidate, Cursor, by_arrival
from limpet.stores.redis.keys import K

_FIRST, _LAST = RANGE.slice("first"), RANGE.slice("last")
_HOLDER, _SEQ = HOLDER.slice("id"), RECORD.slice("seq")


async def of_flow(cursor: Cursor, flow: bytes) -> Batches:
    """The jobs of a flow by their arrival: ranges of numbers, whose ids the ledger knows."""
    pieces: list[range] = []
    async for numbers in _ranges(cursor, K.flow_ranges.under(cursor.key, flow)):
        for piece in _pieces(numbers, cursor):
            pieces.append(piece)
            if sum(map(len, pieces)) >= cursor.batch:
                if batch := await _numbered(cursor, pieces):
                    yield batch
                pieces = []
    if batch := await _numbered(cursor, pieces):
        yield batch


def _pieces(numbers: range, cursor: Cursor) -> Iterator[range]:
    """The numbers chunk by chunk of the ledger."""
    chunks = range(numbers.start // SLOTS, (numbers.stop - 1) // SLOTS + 1)
    for chunk in reversed(chunks) if cursor.newest_first else chunks:
        yield range(max(numbers.start, chunk * SLOTS), min(numbers.stop, (chunk + 1) * SLOTS))


async def _ranges(cursor: Cursor, key: bytes) -> AsyncIterator[range]:
    """The arrival numbers of a flow's jobs, range by range, without those that lie behind."""
    after = None if cursor.after is None else int.from_bytes(cursor.after, "big")
    last: bytes | None = None
    members: list[bytes] = []
    if after is not None and cursor.newest_first:
        last = after.to_bytes(SEQ_BYTES, "big")  # before every range that begins there or later
    elif after is not None:
        bound = b"(" + (after + 1).to_bytes(SEQ_BYTES, "big")
        members = await cursor.call("ZREVRANGEBYLEX", key, bound, "-", "LIMIT", 0, 1)
    while members := members or await cursor.by_lex(key, last, cursor.batch):
        for member in members:
            numbers = _beyond(_range_of(member), cursor, after)
            yield numbers
            if numbers:  # a range whose first jobs are erased meanwhile comes again, and begins later
                after = numbers[0 if cursor.newest_first else -1]
        last, members = members[-1], []


def _range_of(member: bytes) -> range:
    return range(int.from_bytes(member[_FIRST], "big"), int.from_bytes(member[_LAST], "big") + 1)


def _beyond(numbers: range, cursor: Cursor, after: int | None) -> range:
    if after is None:
        return numbers
    if cursor.newest_first:
        return range(numbers.start, min(numbers.stop, after))
    return range(max(numbers.start, after + 1), numbers.stop)


async def _numbered(cursor: Cursor, pieces: Sequence[range]) -> list[Candidate]:
    """The jobs that arrived under these numbers, each piece of which lies in one chunk of the ledger."""
    pieces = [piece for piece in pieces if piece]
    if not pieces:
        return []
    names = [K.ledger.under(cursor.key, b"%d" % (piece.start // SLOTS)) for piece in pieces]
    found: list[Candidate] = []
    for piece, blob in zip(pieces, await cursor.call("MGET", *names), strict=True):
        for seq in reversed(piece) if cursor.newest_first else piece:
            id = (blob or b"")[seq % SLOTS * ID_BYTES :][:ID_BYTES]
            if id not in (b"", BLANK):
                found.append((seq.to_bytes(SEQ_BYTES, "big"), id))
    return found


async def of_key(cursor: Cursor, key: str) -> Batches:
    """The jobs that hold a unique key, one of each task, among those that held it before."""
    holders = await _holders(cursor, key)
    async for batch in by_arrival(cursor, K.former_holders, key.encode()):
        passed = [each for each in holders if (each > batch[-1]) == cursor.newest_first]
        holders = holders[len(passed) :]
        yield sorted([*batch, *passed], reverse=cursor.newest_first)
    if holders:
        yield holders


async def _holders(cursor: Cursor, key: str) -> list[Candidate]:
    counted: list[bytes] = await cursor.call("HKEYS", K.counters.under(cursor.key))
    keys = {field.split(b"\0")[1] + b"\0" + key.encode() for field in counted}
    entries: list[Any] = await cursor.call("HMGET", K.unique_keys.under(cursor.key), *keys) if keys else []
    ids = [entry[_HOLDER] for entry in entries if entry]
    raws: list[Any] = await cursor.call("HMGET", K.jobs.under(cursor.key), *ids) if ids else []
    found = [(raw[_SEQ], id) for id, raw in zip(ids, raws, strict=True) if raw]
    if cursor.after is not None:
        found = [each for each in found if each[0] != cursor.after and (each[0] < cursor.after) == cursor.newest_first]
    return sorted(found, reverse=cursor.newest_first)
