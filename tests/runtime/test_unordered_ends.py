"""What handlers do to the worker around them, and what becomes of the jobs of one that ends without being told to."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.jobs.state import State
from limpet.runtime import WorkerEvents, WorkerFailed
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench


def cancel_own_tasks(name: str = "limpet-") -> list[str]:
    """Cancel every task of the worker that is still in memory, found as no handler should look for it."""
    found = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and each.get_name().startswith(name)]
    here = [task for task in found if not task.done() and task is not asyncio.current_task()]
    for task in here:
        task.cancel()
    return [task.get_name() for task in here]


async def test_a_handler_that_cancels_all_tasks_of_its_loop_costs_no_other_job(bench: Bench) -> None:
    runs: list[int] = []
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def shuts_down() -> None:
        await started.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        cancelled.set()

    async def good(n: int) -> None:
        started.set()
        await cancelled.wait()
        runs.append(n)

    poison, spec = bench.task(shuts_down), bench.task(good)
    for n in range(3):
        await bench.put(spec, {"n": n})
    await bench.put(poison)
    for n in range(3, 6):
        await bench.put(spec, {"n": n})
    before = asyncio.all_tasks()  # the test's own
    report = await bench.drain()
    assert sorted(runs) == [0, 1, 2, 3, 4, 5]
    assert (report.succeeded, report.lost, report.retried) == (7, 0, 0)


@pytest.mark.parametrize(
    "part", ["settler", "learner", "janitor", "ticker", "bypass", "listener", "fetcher", "event-log-tailer"]
)
async def test_a_part_that_other_code_cancels_is_started_again(bench: Bench, part: str) -> None:
    runs: list[int] = []

    async def reaches_in() -> None:
        assert cancel_own_tasks(f"limpet-{part}")
        await asyncio.sleep(0)

    async def good(n: int) -> None:
        runs.append(n)

    poison, spec = bench.task(reaches_in), bench.task(good)
    ready, stop = asyncio.Event(), asyncio.Event()
    worker = bench.worker(events=WorkerEvents(on_ready=lambda info: ready.set()))
    running = asyncio.create_task(worker.run(stop))
    await ready.wait()
    await bench.until([await bench.put(poison)], State.succeeded)
    later = [await bench.put(spec, {"n": n}) for n in range(3)]
    await bench.until(later, State.succeeded)
    stop.set()
    report = await running
    assert (report.succeeded, report.stale, report.lost) == (4, 0, 0)


class Halfway(SqliteStore):
    """The real engine; its first settlement is written, and other code cancels all before the answer is heard."""

    def __init__(self) -> None:
        super().__init__(None)
        self.seqs: list[int] = []

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        self.seqs.append(seq)
        settled = await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)
        if len(self.seqs) == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        return settled


async def test_a_settlement_that_was_cancelled_on_the_way_is_asked_for_again_under_its_number() -> None:
    bench = Bench(Halfway())

    async def works() -> None: ...

    id = await bench.put(bench.task(works))
    report = await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert (report.succeeded, report.stale) == (1, 0)
    assert bench.store.seqs == [1, 1]  # type: ignore[attr-defined]  # of Halfway
    await bench.store.close()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("obeys", [True, False])
async def test_what_an_end_that_nobody_ordered_cuts_off_is_lost(bench: Bench, ordered: bool, obeys: bool) -> None:
    async def waits() -> None:
        worker.stop(ordered=ordered)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if obeys:
                    raise

    id = await bench.put(bench.task(waits))
    worker = bench.worker({"grace_ms": 0, "cleanup_ms": 50})
    await worker.run()
    view = await bench.view(id)
    assert (view.state, view.attempt, view.lost) == (State.ready, 0, 0 if ordered else 1)


@pytest.mark.parametrize("orders", [(False, True), (True, False)])
async def test_an_order_counts_whoever_else_asks_for_the_end(bench: Bench, orders: tuple[bool, bool]) -> None:
    async def waits() -> None:
        for ordered in orders:
            worker.stop(ordered=ordered)
        await asyncio.Event().wait()

    id = await bench.put(bench.task(waits))
    worker = bench.worker({"grace_ms": 0, "cleanup_ms": 50})
    await worker.run()
    assert (await bench.view(id)).lost == 0


class Closed(SqliteStore):
    """The real engine, which takes no settlement."""

    async def settle(self, *_: Any, **__: Any) -> list[Settled]:
        raise OSError("closed")


async def test_ends_that_cannot_be_written_are_handed_on_and_their_session_is_not_left() -> None:
    bench = Bench(Closed(None))
    handed: list[Transition] = []

    async def works() -> int:
        return 7

    id = await bench.put(bench.task(works))
    worker = bench.worker(events=WorkerEvents(on_unwritten=lambda ends, spent: handed.extend(ends)))
    with pytest.raises(WorkerFailed):
        await worker.run(until_empty=True)
    (held,) = await bench.store.held(worker.session)
    assert handed == [Succeed(id, held.token, b"7")]
    await bench.store.close()
