"""A job that waits for ten thousand others costs per parent what one that waits for a hundred does.

Cost is counted, not timed: instructions that SQLite executes, and bytes that it writes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from limpet.core.endings.transition import Bury, Succeed
from limpet.core.jobs.state import State
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.hand import failure
from limpet_contract.harness import Clock

T = TypeVar("T")

NARROW, WIDE = 100, 10_000
CLAIMED, SETTLED = 500, 50  # jobs in one call
GRAIN = 10  # instructions between two counts


class Cost(NamedTuple):
    """What each parent costs."""

    instructions: float
    written_bytes: float


class Meter:
    """Counts what one store does."""

    def __init__(self, store: SqliteStore, width: int) -> None:
        self.costs: dict[str, Cost] = {}
        self._log = f"{store.path}-wal"
        self._width = width
        self._grains = 0

    def watch(self, conn: sqlite3.Connection) -> None:
        conn.execute("PRAGMA wal_autocheckpoint = 0")  # the log only grows, so its size says what was written
        conn.set_progress_handler(self._count, GRAIN)

    def _count(self) -> int:
        self._grains += 1
        return 0

    def _size(self) -> int:
        return os.path.getsize(self._log)

    async def measure(self, what: str, work: Awaitable[T]) -> T:
        grains, size = self._grains, self._size()
        answer = await work
        written = self._size() - size
        self.costs[what] = Cost((self._grains - grains) * GRAIN / self._width, written / self._width)
        return answer


@asynccontextmanager
async def metered(folder: Path, width: int) -> AsyncIterator[tuple[Bench, Meter]]:
    store = SqliteStore(str(folder / f"{width}.db"), sync="normal")
    store.process.checkpointer = None
    meter = Meter(store, width)
    await store.process.writer.submit("watch", meter.watch)
    yield Bench(store, Clock()), meter
    await store.close()


async def worked_off(bench: Bench, *, dead: bool = False) -> None:
    """Run all that can run; the parents leave a result each, or die."""
    hand = bench.hand(tasks=("work",))
    while jobs := await hand.claim(CLAIMED):
        for start in range(0, len(jobs), SETTLED):
            some = jobs[start : start + SETTLED]
            if dead:
                await hand.settle(*(Bury(job.id, job.token, failure()) for job in some))
            else:
                await hand.settle(*(Succeed(job.id, job.token, b'{"rows":17}') for job in some))


async def joined(folder: Path, width: int) -> dict[str, Cost]:
    async with metered(folder, width) as (bench, meter):
        parents = [bench.job() for _ in range(width)]
        child = bench.job(task="join", after=tuple(job.id for job in parents))
        await meter.measure("enqueue", bench.put(*parents, child))
        await meter.measure("work", worked_off(bench))
        hand = bench.hand("joiner")
        await hand.beat()
        job = await meter.measure("claim", hand.take())
        assert len(job.inputs) == width
        return meter.costs


async def revived(folder: Path, width: int) -> dict[str, Cost]:
    async with metered(folder, width) as (bench, meter):
        parents = [bench.job() for _ in range(width)]
        child = bench.job(task="join", after=tuple(job.id for job in parents))
        await bench.put(*parents, child)
        await meter.measure("die", worked_off(bench, dead=True))
        assert await bench.state(child.id) is State.cancelled
        newest_first = [job.id for job in parents[::-1]]

        async def retried() -> None:
            for start in range(0, width, SETTLED):
                await bench.retry(*newest_first[start : start + SETTLED])

        await meter.measure("retry", retried())
        assert await bench.state(child.id) is State.blocked
        return meter.costs


@pytest.mark.parametrize("story", [joined, revived])
async def test_a_parent_costs_the_same_however_many_there_are(
    story: Callable[[Path, int], Awaitable[dict[str, Cost]]], tmp_path: Path
) -> None:
    narrow, wide = await story(tmp_path, NARROW), await story(tmp_path, WIDE)
    for what, cost in wide.items():
        assert cost.instructions < 1.2 * narrow[what].instructions, f"{what}: {narrow[what]} became {cost}"
        assert cost.written_bytes < 1.2 * narrow[what].written_bytes, f"{what}: {narrow[what]} became {cost}"
