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
from limpet.stores.redis.keys import K
from limpet.stores.redis.together import of_flow, of_key
from limpet.stores.redis.walk import BATCH, NOBODY, Batches, Candidate, Walk, by_arrival

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


def walk(query: Query, way: Walk) -> Batches:
    """The candidates for a query, by one index."""
    name = name_of(query)
    shared = exact_of(query.terms, name) if name in SHARED else None
    if shared is not None:
        return of_flow(way, id_bytes(shared)) if name == "flow" else of_key(way, shared)
    if name == State.scheduled:
        return _scheduled(way)
    if name == State.blocked:
        return by_arrival(way, K.blocked)
    if name == State.running:
        return _running(way)
    if name in FINISHED:
        return _finished(way, State(name), exact_of(query.terms, "queue"))
    return _ledger(way)


# -- by arrival


async def _ledger(way: Walk) -> Batches:
    after = None if way.after is None else int.from_bytes(way.after, "big")
    batch: list[Candidate] = []
    async for chunk, blob in chunks(way, None if after is None else after // SLOTS, max(1, way.batch // SLOTS)):
        for slot, id in slots(blob, newest_first=way.newest_first):
            seq = chunk * SLOTS + slot
            if after is None or (seq < after if way.newest_first else seq > after):
                batch.append((seq.to_bytes(SEQ_BYTES, "big"), id))
        if len(batch) >= way.batch:
            yield batch
            batch = []
    if batch:
        yield batch


async def chunks(way: Walk, first: int | None, count: int) -> AsyncIterator[tuple[int, bytes]]:
    """(number, ids) of the ledger's chunks, from `first` on, read `count` at a time."""
    inclusive = True
    while True:
        found = await way.by_score(K.ledger_chunks.under(way.key), first, count, inclusive=inclusive)
        numbers = [int(number) for number in found[::2]]
        if not numbers:
            return
        blobs: list[Any] = await way.call("MGET", *(K.ledger.under(way.key, b"%d" % number) for number in numbers))
        for number, blob in zip(numbers, blobs, strict=True):
            if blob is not None:
                yield number, blob
        first, inclusive = numbers[-1], False


def slots(blob: bytes, *, newest_first: bool) -> Iterator[tuple[int, bytes]]:
    """(place, id) of a string of ids."""
    places = range(len(blob) // ID_BYTES)
    for slot in reversed(places) if newest_first else places:
        id = blob[slot * ID_BYTES :][:ID_BYTES]
        if id != NOBODY:
            yield slot, id


# -- by time


async def _scheduled(way: Walk) -> Batches:
    levels: Sequence[int] = range(LEAST_URGENT + 1)
    after = way.after
    for level in reversed(levels) if way.newest_first else levels:
        if after is not None and (level > after[0] if way.newest_first else level < after[0]):
            continue
        last = after[1:] if after is not None and level == after[0] else None
        while items := await way.by_lex(K.scheduled.under(way.key, b"%d" % level), last, way.batch):
            yield [(bytes((level,)) + item, item[_ITEM_ID]) for item in items]
            last = items[-1]


async def _finished(way: Walk, state: State, queue: str | None) -> Batches:
    """The indexes of all queues as one: what is read of each is good up to where the first of them breaks off."""
    queues: list[bytes] = [queue.encode()] if queue is not None else await way.call("SMEMBERS", K.queues.under(way.key))
    keys, after = [K.finished.under(way.key, b"%d" % state.code + queue) for queue in queues], way.after
    while keys:
        count = max(FEW, (2 if state is not State.succeeded else 1) * way.batch // len(keys))
        found = await asyncio.gather(*(way.by_lex(key, _around(way, after), count) for key in keys))
        ends = [_entries(members[-1])[0][0] for members in found if len(members) == count]
        if not way.newest_first:
            ends = [_entries(members[-1])[-1][0] for members in found if len(members) == count]
        merged = sorted(each for members in found for member in members for each in _entries(member))
        if way.newest_first:
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


def _around(way: Walk, after: bytes | None) -> bytes | None:
    """Where to begin to read, so that the member which holds the position `after` is read again."""
    if after is None:
        return None
    return after[:NAMED_BY] + b"\xff" * ID_BYTES if way.newest_first else after[: NAMED_BY - 1]


# -- by token


async def _running(way: Walk) -> Batches:
    tokens = sorted(map(int, await way.call("HKEYS", K.leases.under(way.key))), reverse=way.newest_first)
    if way.after is not None:
        last = int.from_bytes(way.after[_TOKEN], "big")
        tokens = [token for token in tokens if (token <= last if way.newest_first else token >= last)]
    for start in range(0, len(tokens), BATCH):
        some = tokens[start : start + BATCH]
        blobs: list[Any] = await way.call("MGET", *(K.lease_jobs.under(way.key, b"%d" % token) for token in some))
        batch: list[Candidate] = []
        for token, blob in zip(some, blobs, strict=True):
            ids = sorted((id for _, id in slots(blob or b"", newest_first=False)), reverse=way.newest_first)
            batch += [(token.to_bytes(TOKEN_BYTES, "big") + id, id) for id in ids]
        if way.after is not None:
            batch = [each for each in batch if (each[0] < way.after if way.newest_first else each[0] > way.after)]
        for first in range(0, len(batch), way.batch):
            yield batch[first : first + way.batch]
