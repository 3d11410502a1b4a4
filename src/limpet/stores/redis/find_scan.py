"""Walks one index of stored jobs in order: (position, id) in batches, from the start or from behind a position.

Positions are opaque bytes that stay where they are while jobs come and go, so that they can be cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final

from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import LEAST_URGENT
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import Query
from limpet.stores.match import exact_of
from limpet.stores.redis.fields import ENDED, ID_BYTES, ITEM, SEQ_BYTES, SLOTS, TOKEN_BYTES
from limpet.stores.redis.find_by_name import of_flow, of_key
from limpet.stores.redis.find_cursor import BATCH, BLANK, Batches, Candidate, Cursor, by_arrival
from limpet.stores.redis.keys import K

FEW: Final = 16  # finished jobs that are read of each queue at least
NAMED_BY: Final = ENDED.size + ID_BYTES  # bytes of a finished index's member that tell it from others
SHARED: Final = ("flow", "unique")  # what few jobs share is looked up, whatever their states

_ITEM_ID, _TOKEN = ITEM.slice("id"), slice(TOKEN_BYTES)


def name_of(query: Query) -> str:
    """The index that a query follows; a cursor of one is none of another."""
    for name in SHARED:
        if exact_of(query.terms, name) is not None:
            return name
    if query.states is not None and len(query.states) == 1:
        (state,) = query.states
        return "ledger" if state is State.ready else state.value
    return "ledger"


def scan(query: Query, cursor: Cursor) -> Batches:
    """The candidates for a query, by one index."""
    name = name_of(query)
    shared = exact_of(query.terms, name) if name in SHARED else None
    if shared is not None:
        return of_flow(cursor, id_bytes(shared)) if name == "flow" else of_key(cursor, shared)
    if name == State.scheduled:
        return _scheduled(cursor)
    if name == State.blocked:
        return by_arrival(cursor, K.blocked)
    if name == State.running:
        return _running(cursor)
    if name in FINISHED:
        return _finished(cursor, State(name), exact_of(query.terms, "queue"))
    return _ledger(cursor)


# -- by arrival


async def _ledger(cursor: Cursor) -> Batches:
    after = None if cursor.after is None else int.from_bytes(cursor.after, "big")
    batch: list[Candidate] = []
    async for chunk, blob in chunks(cursor, None if after is None else after // SLOTS, max(1, cursor.batch // SLOTS)):
        for slot, id in slots(blob, newest_first=cursor.newest_first):
            seq = chunk * SLOTS + slot
            if after is None or (seq < after if cursor.newest_first else seq > after):
                batch.append((seq.to_bytes(SEQ_BYTES, "big"), id))
        if len(batch) >= cursor.batch:
            yield batch
            batch = []
    if batch:
        yield batch


async def chunks(cursor: Cursor, first: int | None, count: int) -> AsyncIterator[tuple[int, bytes]]:
    """(number, ids) of the ledger's chunks, from `first` on, read `count` at a time."""
    inclusive = True
    while True:
        found = await cursor.by_score(K.ledger_chunks.under(cursor.key), first, count, inclusive=inclusive)
        numbers = [int(number) for number in found[::2]]
        if not numbers:
            return
        blobs: list[Any] = await cursor.call(
            "MGET", *(K.ledger.under(cursor.key, b"%d" % number) for number in numbers)
        )
        for number, blob in zip(numbers, blobs, strict=True):
            if blob is not None:
                yield number, blob
        first, inclusive = numbers[-1], False


def slots(blob: bytes, *, newest_first: bool) -> Iterator[tuple[int, bytes]]:
    """(place, id) of a string of ids."""
    places = range(len(blob) // ID_BYTES)
    for slot in reversed(places) if newest_first else places:
        id = blob[slot * ID_BYTES :][:ID_BYTES]
        if id != BLANK:
            yield slot, id


# -- by time


async def _scheduled(cursor: Cursor) -> Batches:
    levels: Sequence[int] = range(LEAST_URGENT + 1)
    after = cursor.after
    for level in reversed(levels) if cursor.newest_first else levels:
        if after is not None and (level > after[0] if cursor.newest_first else level < after[0]):
            continue
        last = after[1:] if after is not None and level == after[0] else None
        while items := await cursor.by_lex(K.scheduled.under(cursor.key, b"%d" % level), last, cursor.batch):
            yield [(bytes((level,)) + item, item[_ITEM_ID]) for item in items]
            last = items[-1]


async def _finished(cursor: Cursor, state: State, queue: str | None) -> Batches:
    """The indexes of all queues as one: what is read of each is good up to where the first of them breaks off."""
    queues: list[bytes] = (
        [queue.encode()] if queue is not None else await cursor.call("SMEMBERS", K.queues.under(cursor.key))
    )
    keys, after = [K.finished.under(cursor.key, b"%d" % state.code + queue) for queue in queues], cursor.after
    while keys:
        count = max(FEW, (2 if state is not State.succeeded else 1) * cursor.batch // len(keys))
        found = await asyncio.gather(*(cursor.by_lex(key, _around(cursor, after), count) for key in keys))
        ends = [_entries(members[-1])[0][0] for members in found if len(members) == count]
        if not cursor.newest_first:
            ends = [_entries(members[-1])[-1][0] for members in found if len(members) == count]
        merged = sorted(each for members in found for member in members for each in _entries(member))
        if cursor.newest_first:
            merged = [each for each in reversed(merged) if after is None or each[0] < after]
            merged = [each for each in merged if not ends or each[0] >= max(ends)]
        else:
            merged = [each for each in merged if after is None or each[0] > after]
            merged = [each for each in merged if not ends or each[0] <= min(ends)]
        if merged:
            yield merged
            after = merged[-1][0]
        if not ends:
            return
        keys = [key for key, members in zip(keys, found, strict=True) if members]


def _entries(member: bytes) -> list[Candidate]:
    """The jobs of one member of an index of finished ones: those that succeeded together share it."""
    name, places = member[:NAMED_BY], range(ENDED.size, len(member), ID_BYTES)
    return [(name + at.to_bytes(2, "big"), member[at : at + ID_BYTES]) for at in places]


def _around(cursor: Cursor, after: bytes | None) -> bytes | None:
    """Where to begin to read, so that the member which holds the position `after` is read again."""
    if after is None:
        return None
    return after[:NAMED_BY] + b"\xff" * ID_BYTES if cursor.newest_first else after[: NAMED_BY - 1]


# -- by token


async def _running(cursor: Cursor) -> Batches:
    tokens = sorted(map(int, await cursor.call("HKEYS", K.leases.under(cursor.key))), reverse=cursor.newest_first)
    if cursor.after is not None:
        last = int.from_bytes(cursor.after[_TOKEN], "big")
        tokens = [token for token in tokens if (token <= last if cursor.newest_first else token >= last)]
    for start in range(0, len(tokens), BATCH):
        some = tokens[start : start + BATCH]
        blobs: list[Any] = await cursor.call("MGET", *(K.lease_jobs.under(cursor.key, b"%d" % token) for token in some))
        batch: list[Candidate] = []
        for token, blob in zip(some, blobs, strict=True):
            ids = sorted((id for _, id in slots(blob or b"", newest_first=False)), reverse=cursor.newest_first)
            batch += [(token.to_bytes(TOKEN_BYTES, "big") + id, id) for id in ids]
        if cursor.after is not None:
            batch = [
                each for each in batch if (each[0] < cursor.after if cursor.newest_first else each[0] > cursor.after)
            ]
        for first in range(0, len(batch), cursor.batch):
            yield batch[first : first + cursor.batch]
