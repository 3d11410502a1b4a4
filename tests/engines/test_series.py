"""Counts over time on real engines: written by workers, summed by one of them, read for charts, kept for weeks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.rollup import HOUR_MS, MARK, MINUTE_MS, Mark, read, written
from limpet.core.jobs.state import State
from limpet.core.records.series import SeriesRecord
from limpet.ops.operator import Operator
from limpet.ops.scope import ScopedStore
from limpet.runtime.minute_counter import AttemptCounter, Reading
from limpet.runtime.rollup_folder import RollupFolder
from limpet.runtime.rollup_writer import RollupWriter
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.ops.making import claim, job, put
from tests.runtime.running import Bench

DAWN_MS = 480_000 * HOUR_MS


class Teller:
    """One worker's counts, and the hand that writes them."""

    def __init__(self, store: Store, session: str, job: Claimed) -> None:
        self.counter = AttemptCounter()
        self.writer = RollupWriter(store, session, Reading(self.counter))
        self._job = job

    async def tell(self, at_ms: int, *, count: int = 1, outcome: str = "succeeded", run_s: float = 0.5) -> None:
        for _ in range(count):
            self.counter.ended(self._job, outcome, run_s)
        await self.writer.write(now_ms=at_ms)


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


async def taken(store: Store) -> Claimed:
    await put(store, job())
    (one,) = await claim(store)
    return one


async def read_at(store: Store, at_ms: int, last: str = "1h", **asked: str) -> SeriesRecord:
    return await Operator(store, "ada", clock=lambda: at_ms).series(last, **asked)  # type: ignore[arg-type]


async def test_counts_stay_for_weeks_in_minutes_and_then_in_hours(bench: Bench) -> None:
    worker, folder = Teller(bench.store, "w1", await taken(bench.store)), RollupFolder(bench.store)
    for hour in range(60):
        at_ms = DAWN_MS + hour * HOUR_MS + 7 * MINUTE_MS
        await worker.tell(at_ms, count=hour + 1)
        while await folder.look(now_ms=at_ms + 2 * MINUTE_MS):
            pass
    now_ms = DAWN_MS + 60 * HOUR_MS
    while await folder.look(now_ms=now_ms + MINUTE_MS):
        pass
    day = await read_at(bench.store, now_ms, "24h", step="1h")
    assert day.kept_by == "minute"
    assert day.total.ended["succeeded"] == list(range(37, 61))
    whole = await read_at(bench.store, now_ms, "3d", step="1h")
    assert (whole.kept_by, len(whole.at)) == ("hour", 72)
    assert [count for count in whole.total.ended["succeeded"] if count] == list(range(1, 61))
    assert whole.total.run_p95_s[-1] == pytest.approx(0.5, rel=0.3)
    (control,) = await bench.store.controls(MARK[0])
    mark = read(control, Mark)
    assert mark is not None
    await bench.store.put_control(written(*MARK, Mark(mark.minute, mark.hour - 5)))
    again = await read_at(bench.store, now_ms, "3d", step="1h")
    assert again.total == whole.total, "hours that were written while the mark was read count once"
    before = await read_at(bench.store, now_ms, "1h", ago="2d")
    assert sum(before.total.ended["succeeded"]) == 12, "the same hour two days ago"
    later = await read_at(bench.store, now_ms + 40 * 24 * HOUR_MS, "35d")
    assert later.total.ended == {}, "what is older than it is kept is not shown, though no one has written over it"


async def test_workers_add_up_and_a_dead_ones_counts_stay(bench: Bench) -> None:
    job = await taken(bench.store)
    first, second = Teller(bench.store, "w1", job), Teller(bench.store, "w2", job)
    folder = RollupFolder(bench.store)
    await first.tell(DAWN_MS, count=3)
    await second.tell(DAWN_MS + 5_000, count=2, outcome="dead")
    await first.tell(DAWN_MS + 10_000, count=4)
    live = await read_at(bench.store, DAWN_MS + 11_000)
    assert live.total.whole.ended == {"succeeded": 7, "dead": 2}, "before any minute is summed"
    for _ in range(2):
        await folder.look(now_ms=DAWN_MS + MINUTE_MS + 11_000)
    late = DAWN_MS + 20 * MINUTE_MS
    third = Teller(bench.store, "w3", job)
    await third.tell(late)
    assert len(await bench.store.controls("rollup:parts")) == 2, "it took the place of a dead one"
    await first.tell(late + 1_000, count=3)
    await second.tell(late + 1_000, count=4)
    await third.tell(late + 2_000)
    assert len(await bench.store.controls("rollup:parts")) <= 3
    await folder.look(now_ms=late + 2 * MINUTE_MS)
    found = await read_at(bench.store, late + 2 * MINUTE_MS)
    assert found.total.whole.ended == {"succeeded": 16, "dead": 2}, "one that was only slow has a place again"


async def test_many_sum_at_once_and_each_minute_is_counted_once(bench: Bench) -> None:
    worker = Teller(bench.store, "w1", await taken(bench.store))
    for minute in range(3):
        await worker.tell(DAWN_MS + minute * MINUTE_MS, count=minute + 1)
    due_ms = DAWN_MS + 3 * MINUTE_MS + 11_000
    await asyncio.gather(*(RollupFolder(bench.store).look(now_ms=due_ms) for _ in range(5)))
    (mark,) = await bench.store.controls(MARK[0])
    assert mark.version == 2, "one of them took it, and finished"
    found = await read_at(bench.store, due_ms)
    assert [count for count in found.total.ended["succeeded"] if count] == [1, 2, 3]


async def test_who_dies_while_it_sums_is_followed_by_another(bench: Bench) -> None:
    worker, folder = Teller(bench.store, "w1", await taken(bench.store)), RollupFolder(bench.store)
    await folder.look(now_ms=DAWN_MS)
    await worker.tell(DAWN_MS, count=5)
    due_ms = DAWN_MS + MINUTE_MS + 11_000
    await folder.look(now_ms=DAWN_MS + 11_000)
    (control,) = await bench.store.controls(MARK[0])
    mark = read(control, Mark)
    assert mark is not None
    await bench.store.put_control(written(*MARK, Mark(mark.minute, mark.hour, due_ms + 30_000)))
    await folder.look(now_ms=due_ms)
    (control,) = await bench.store.controls(MARK[0])
    assert read(control, Mark) == Mark(mark.minute, mark.hour, due_ms + 30_000), "another one is about it"
    await folder.look(now_ms=due_ms + 30_000)
    (control,) = await bench.store.controls(MARK[0])
    assert read(control, Mark) == Mark(DAWN_MS // MINUTE_MS, mark.hour)
    assert sum((await read_at(bench.store, due_ms + 30_000)).total.ended["succeeded"]) == 5


async def test_depths_and_counters_are_the_stores_own(bench: Bench) -> None:
    folder = RollupFolder(bench.store)
    await folder.look(now_ms=DAWN_MS)
    await put(bench.store, job("a", queue="mail"), job("b", queue="mail"), job("c", queue="pay"))
    await folder.look(now_ms=DAWN_MS + 2 * MINUTE_MS)
    now_ms = DAWN_MS + 3 * MINUTE_MS
    found = await read_at(bench.store, now_ms, "5m", by="queue")
    assert found.ever is not None
    assert [count for count in found.ever["enqueued"] if count] == [3]
    depths = {line.queue: line.depth for line in found.lines}
    assert found.total.depth is not None
    assert max(count or 0 for count in found.total.depth.ready) == 3
    assert depths["mail"] is not None
    assert max(count or 0 for count in depths["mail"].ready) == 2, "a queue in which nothing ended is shown, too"
    scoped = await read_at(ScopedStore(bench.store, frozenset({"pay"})), now_ms, "5m", by="queue")
    assert ([line.queue for line in scoped.lines], scoped.ever) == (["pay"], None)


async def test_a_worker_that_ends_has_written_all_that_it_counted(bench: Bench) -> None:
    async def fine() -> None: ...

    async def bad() -> None:
        raise ValueError("bad address")

    specs = [bench.task(fine, queue="mail"), bench.task(bad)]
    for _ in range(5):
        await bench.put(specs[0])
    await bench.put(specs[1])
    report = await bench.drain()
    assert (report.succeeded, report.dead) == (5, 1)
    found = await Operator(bench.store, "ada").series(by="task")
    assert {line.task: line.whole.ended for line in found.lines} == {"fine": {"succeeded": 5}, "bad": {"dead": 1}}
    chosen = await Operator(bench.store, "ada").series(queue="mail")
    assert chosen.total.whole.ended == {"succeeded": 5}
    assert (await bench.store.count()).total(State.succeeded) == 5


async def test_what_cannot_be_answered_is_refused(bench: Bench) -> None:
    operator = Operator(bench.store, "ada")
    with pytest.raises(InvalidOption, match="35 days"):
        await operator.series("36d")
    with pytest.raises(InvalidOption, match="35 days"):
        await operator.series("7d", ago="30d")
    with pytest.raises(InvalidOption, match="number of minutes"):
        await operator.series("1h", step=45)
    with pytest.raises(InvalidOption, match="600 points"):
        await operator.series("24h", step="1m")
