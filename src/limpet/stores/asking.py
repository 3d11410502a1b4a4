"""What several rooms ask of any store: every job that a query finds, and whether it takes new ones."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from msgspec.structs import replace

from limpet.core.errors import WrongContext
from limpet.core.gate import Gate, WorstFirst
from limpet.core.jobs.job import Lane
from limpet.core.jobs.view import AttemptView, JobView, Page, Query
from limpet.core.limits.depth import queue_draining
from limpet.stores.base import Broadcasts, Examines, Joins, Store

MOST_GATES: Final = 10_000  # that one look at a store's gates answers
GATE_KINDS: Final = ("all", "limit:", "queue:", "task:")  # beside breakers


def joining(store: Store, to: Literal["enqueue", "complete a job"]) -> Joins:
    """The store as one that takes part in the caller's transaction; WrongContext for an engine that cannot."""
    if not isinstance(store, Joins):
        fixes = {
            "enqueue": "keep an outbox there, Limpet(url, outbox=...), or enqueue after the commit",
            "complete a job": "return the result instead and make your writes repeatable, "
            "or use a store on SQLite or PostgreSQL",
        }
        name = store.features.name.capitalize()
        raise WrongContext(f"{name} cannot {to} inside a transaction of your database", fix=fixes[to])
    return store


def examined(store: Store) -> Examines:
    """The store as one that can be examined; WrongContext for an engine that cannot."""
    if not isinstance(store, Examines):
        raise WrongContext(
            f"the {store.features.name} engine cannot examine its store",
            fix="use the tools of its server, or restore it from a backup",
        )
    return store


def broadcasting(store: Store) -> Broadcasts:
    """The store as one that carries live events; WrongContext for an engine that cannot."""
    if not isinstance(store, Broadcasts):
        raise WrongContext(
            f"the {store.features.name} engine carries no live events", fix="look again and again: jobs, stats --watch"
        )
    return store


async def last_seq(store: Store, log: Literal["audit", "event"]) -> int:
    """The seq of the newest line of a log, 0 when it is empty."""
    found = await store.read(log, limit=1, newest=True)
    return found[0].seq if found else 0


async def attempts_of(store: Store, id: bytes) -> tuple[AttemptView, ...]:
    """Every recorded attempt of a job, oldest first; none when it is gone."""
    found = await store.inspect(id)
    return () if found is None else found.attempts


class Finds(Protocol):
    """A store, or the part of one that finds jobs."""

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page: ...


async def find_all(store: Finds, query: Query, *, now_ms: int | None = None) -> list[JobView]:
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
    """The gates of every kind, at most MOST_GATES of each: many keys hide no queue, no task and no open breaker."""
    others = [gate for kind in GATE_KINDS for gate in await store.gates(kind)]
    return [*await store.gates("breaker:", worst_first=WorstFirst(MOST_GATES)), *others]


async def refuse_draining(store: Store, *lanes: Lane) -> None:
    """Raise what an enqueue would, where everything, the queue or the task only works off the jobs that it has.

    For callers that have to make room for a job first, and must not do so in vain.
    """
    for gate in await store.gates(keys=[key for lane in lanes for key in lane.class_gates[:3]]):
        if gate.draining:
            raise queue_draining(gate.key)
