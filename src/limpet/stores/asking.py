"""What several rooms ask of any store: its time, every job that a query finds, and whether it takes new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from msgspec.structs import replace

from limpet.core.depth import queue_draining
from limpet.core.gate import Gate
from limpet.core.job import Lane
from limpet.core.lease import ClaimRequest, Serves
from limpet.core.view import Entry, JobView, Query
from limpet.stores.base import Store

MOST_GATES: Final = 10_000  # that one look at a store's gates answers
GATE_KINDS: Final = ("all", "breaker:", "limit:", "queue:", "task:")

_NOBODY: Final = ClaimRequest("limpet.clock", Serves((), ()), limit=0, slots=0, seq=0, claimer="clock")


class Reads(Protocol):
    """A store, or whoever asks one."""

    async def read(self, log: Literal["audit", "event"], after: int = 0, limit: int = 100) -> Sequence[Entry]:
        """Lines of a log, oldest first."""


async def engine_now_ms(store: Store) -> int:
    """The time by the engine's clock, which decides when jobs are due, whatever the clock of this machine shows.

    A claim of a session that does not live gets nothing, changes nothing, and is told the time.
    """
    return (await store.claim(_NOBODY)).now_ms


async def last_seq(store: Reads, log: Literal["audit", "event"]) -> int:
    """The seq of the newest line of a log, 0 when it is empty; found by halving, as a log may be long."""
    low, high = 0, 1
    while found := await store.read(log, high, 1):
        low, high = found[0].seq, 4 * found[0].seq
    while low < high:  # the newest is none after `high`, and none before `low`
        middle = (low + high) // 2
        found = await store.read(log, middle, 1)
        low, high = (found[0].seq, high) if found else (low, middle)
    return low


async def find_all(store: Store, query: Query, *, now_ms: int | None = None) -> list[JobView]:
    """Every job that the query finds, in its order, over as many pages as that takes."""
    found: list[JobView] = []
    while True:
        page = await store.find(query, now_ms=now_ms)
        found += page.jobs
        if page.cursor is None:
            return found
        query = replace(query, cursor=page.cursor)


async def gate_of(store: Store, key: str) -> Gate | None:
    """The gate with exactly this key."""
    return next(iter(await store.gates(keys=[key])), None)


async def all_gates(store: Store) -> list[Gate]:
    """The gates of every kind, by kind and key, at most MOST_GATES of each: many keys hide no queue and no task."""
    return [gate for kind in GATE_KINDS for gate in await store.gates(kind)]


async def refuse_draining(store: Store, *lanes: Lane) -> None:
    """Raise what an enqueue would, where everything, the queue or the task only works off the jobs that it has.

    For those who have to make room for a job first, and must not do so in vain.
    """
    for gate in await store.gates(keys=[key for lane in lanes for key in lane.class_gates[:3]]):
        if gate.draining:
            raise queue_draining(gate.key)
