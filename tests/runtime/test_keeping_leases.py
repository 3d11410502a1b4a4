"""Leases by liveness: a beat needs no free loop, and who lost a session stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from limpet.core.errors import StoreUnreachable
from limpet.core.jobs.lease import Beat, Pulse
from limpet.core.jobs.state import State
from limpet.runtime import Parts, WorkerCutOff, WorkerEvents, WorkerFailed, WorkerPlan, WorkerSettings
from limpet.runtime.fence import Fence
from limpet.runtime.keeper import Keeper
from limpet.runtime.local_queue import Demand, LocalQueue, Slots
from limpet.runtime.minute_counter import AttemptCounter
from limpet.runtime.settler import Notebook
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench


async def test_a_blocked_loop_keeps_its_lease(bench: Bench) -> None:
    """The lease is prolonged while the handler blocks the loop; another worker, who sweeps meanwhile, finds nothing."""
    blocked, go_on = threading.Event(), threading.Event()

    async def blocks() -> str:
        blocked.set()
        go_on.wait(90)
        return "kept"

    id = await bench.put(bench.task(blocks))
    lost: list[int] = []
    deadlines: set[int] = set()

    def second_worker() -> None:
        async def sweep() -> None:
            until_s = time.monotonic() + 60
            while len(deadlines) < 4 and time.monotonic() < until_s:
                lost.append(await bench.store.expire())
                deadlines.update(session.deadline_at_ms for session in await bench.store.sessions())
            lost.append(len(await bench.claim_as("second")))

        blocked.wait(60)
        asyncio.run(sweep())
        go_on.set()

    thread = threading.Thread(target=second_worker)
    thread.start()
    report = await bench.drain({"beat_ms": 40})
    await asyncio.to_thread(thread.join)
    assert len(deadlines) == 4
    assert set(lost) == {0}
    assert (report.succeeded, report.stale) == (1, 0)
    view = await bench.view(id)
    assert (view.result, view.lost) == (b'"kept"', 0)


async def test_a_worker_that_lost_its_session_stops_what_runs_and_settles_nothing(bench: Bench) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def once_endless() -> None:
        runs.append(1)
        if len(runs) > 1:
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    id = await bench.put(bench.task(once_endless))
    stop = asyncio.Event()
    worker = bench.worker({"beat_ms": 20})
    work = asyncio.create_task(worker.run(stop))
    await started.wait()
    await bench.store.leave(worker.session)  # as if it had been silent and was swept
    await cancelled.wait()
    view = await bench.store.watch(id, 60_000)
    stop.set()
    report = await work
    assert view is not None
    assert (view.state, len(runs)) == (State.succeeded, 2)
    assert (report.succeeded, report.stale) == (1, 0)


class SlowPulse(SqliteStore):
    """The real engine; beats of a lost session are answered late, after the worker has claimed again."""

    def __init__(self) -> None:
        super().__init__(None)
        self.claimed_again = threading.Event()

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        first = not await self.sessions()
        pulse = await super().beat(beat, now_ms=now_ms)
        if pulse.fresh and first:
            await asyncio.to_thread(self.claimed_again.wait, 60)
        return pulse


async def test_a_job_claimed_again_before_the_loss_was_noticed_is_not_dropped() -> None:
    store = SlowPulse()
    store.claimed_again.set()
    bench = Bench(store)
    started, cancelled, second_run, go_on = (asyncio.Event() for _ in range(4))
    runs: list[int] = []

    async def twice() -> str:
        runs.append(1)
        if len(runs) > 1:
            second_run.set()
            await go_on.wait()
            return "second"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "first"

    id = await bench.put(bench.task(twice))
    stop = asyncio.Event()
    worker = bench.worker({"beat_ms": 20})
    work = asyncio.create_task(worker.run(stop))
    await started.wait()
    store.claimed_again.clear()
    await store.leave(worker.session)
    await second_run.wait()
    store.claimed_again.set()
    await cancelled.wait()
    go_on.set()
    view = await store.watch(id, 60_000)
    stop.set()
    report = await work
    assert view is not None
    assert view.result == b'"second"'
    assert (report.succeeded, report.stale) == (1, 0)
    await store.close()


class DeafStore(SqliteStore):
    """The real engine behind a line that can be cut."""

    def __init__(self) -> None:
        super().__init__(None)
        self.cut = False
        self.refused = threading.Semaphore(0)
        self.bug: Exception | None = None

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        if self.bug is not None:
            raise self.bug
        if self.cut:
            self.refused.release()
            raise StoreUnreachable("cut", verb="beat")
        return await super().beat(beat, now_ms=now_ms)


async def test_a_worker_that_stays_cut_off_ends_loudly() -> None:
    store = DeafStore()
    bench = Bench(store)

    async def noop() -> None: ...

    bench.task(noop)
    cut = WorkerEvents(on_ready=lambda info: setattr(store, "cut", True))
    worker = bench.worker({"beat_ms": 5, "cut_off_ms": 20}, events=cut)
    with pytest.raises(WorkerCutOff, match="the store was not reached for"):
        await worker.run()
    await store.close()


async def test_a_worker_that_never_reaches_its_store_ends_loudly() -> None:
    store = DeafStore()
    store.cut = True
    bench = Bench(store)
    with pytest.raises(WorkerCutOff):
        await bench.worker({"beat_ms": 5, "cut_off_ms": 20}).run()
    await store.close()


async def test_a_keeper_that_dies_takes_the_worker_down() -> None:
    store = DeafStore()
    bench = Bench(store)

    async def noop() -> None: ...

    bench.task(noop)
    store.bug = LookupError("at the first beat")
    with pytest.raises(LookupError, match="at the first beat"):
        await bench.worker().run()
    store.bug = None
    breaks = WorkerEvents(on_ready=lambda info: setattr(store, "bug", LookupError("later")))
    worker = bench.worker({"beat_ms": 5}, events=breaks)
    with pytest.raises(WorkerFailed, match="keeper died"):
        await worker.run()
    await store.close()


async def test_a_worker_can_be_stopped_while_it_waits_for_its_store() -> None:
    store = DeafStore()
    store.cut = True
    bench = Bench(store)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 5}).run(stop))
    for _ in range(3):
        assert await asyncio.to_thread(store.refused.acquire, timeout=60)
    assert not work.done()
    stop.set()
    assert (await work).ending == "stopped"
    await store.close()


class SlowStore(SqliteStore):
    """The real engine, which answers a beat when the test says so."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asked, self.answer = threading.Event(), threading.Event()

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        self.asked.set()
        await asyncio.to_thread(self.answer.wait, 60)
        return await super().beat(beat, now_ms=now_ms)


def keeper_of(store: Store, on_pulse: Callable[[Pulse, bool], None], settings: WorkerSettings | None = None) -> Keeper:
    """A keeper of a session without jobs."""
    plan = WorkerPlan(store=store, parts=Parts(tasks={}), settings=settings or WorkerSettings(), session="s")
    held = LocalQueue({}, Slots(1), Slots(1), Slots(1), isolates=False, demand=Demand())
    return Keeper(plan, Notebook(), held, Fence(plan.settings.ttl_ms, None), lambda: b"{}", on_pulse, AttemptCounter())


async def test_a_first_beat_that_is_answered_after_the_stop_is_no_lost_session() -> None:
    store = SlowStore()
    heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    keeper = keeper_of(store, lambda pulse, first: heard.set_result(first))
    starting = asyncio.create_task(keeper.start(lambda name, error: None))
    await asyncio.to_thread(store.asked.wait, 60)
    starting.cancel()
    await asyncio.wait({starting})
    store.answer.set()
    assert await heard
    await keeper.stop()
    await store.close()


async def test_a_call_for_a_beat_that_comes_during_a_beat_is_not_lost() -> None:
    store = SlowStore()
    pulses: asyncio.Queue[bool] = asyncio.Queue()
    seldom = WorkerSettings(beat_ms=600_000, ttl_ms=1_800_000)
    keeper = keeper_of(store, lambda pulse, first: pulses.put_nowait(first), seldom)
    starting = asyncio.create_task(keeper.start(lambda name, error: None))
    await asyncio.to_thread(store.asked.wait, 60)
    keeper.beat_now()
    store.answer.set()
    await starting
    async with asyncio.timeout(60):
        assert [await pulses.get(), await pulses.get()] == [True, False]
        await keeper.stop()
    await store.close()
