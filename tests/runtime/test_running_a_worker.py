"""A worker's life: it runs jobs of every kind, ends as asked, and spends no attempt on its own end."""

from __future__ import annotations

import asyncio
import threading
from itertools import count

import pytest

from limpet.core.jobs.job import Job
from limpet.core.jobs.state import State
from limpet.core.tasks.task import build_job
from limpet.runtime import WorkerFailed
from tests.runtime.running import Bench


async def test_async_and_sync_jobs_run_and_leave_results(bench: Bench) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    def name_of_thread(prefix: str) -> str:
        return prefix + threading.current_thread().name

    added = await bench.put(bench.task(add), {"a": 1, "b": 2})
    named = await bench.put(bench.task(name_of_thread), {"prefix": "in "})
    report = await bench.drain()
    assert (report.ending, report.succeeded) == ("empty", 2)
    assert (await bench.view(added)).result == b"3"
    assert (await bench.view(named)).result == b'"in limpet-job-1"'


@pytest.mark.parametrize("urgent", [True, False])
@pytest.mark.parametrize("asked", [{"concurrency": 2}, {"concurrency": 20, "threads": 4}], ids=["slots", "threads"])
async def test_as_many_ordinary_jobs_run_at_once_as_were_asked_for(
    bench: Bench, asked: dict[str, int], urgent: bool
) -> None:
    """And one more, where a task is urgent, if it is an urgent job."""
    started, loop = asyncio.Queue[str](), asyncio.get_running_loop()
    loops_go_on, threads_go_on = asyncio.Event(), threading.Event()

    async def in_loop(name: str) -> None:
        started.put_nowait(name)
        await loops_go_on.wait()

    def in_thread(name: str) -> None:
        loop.call_soon_threadsafe(started.put_nowait, name)
        threads_go_on.wait(60)

    fn, places = (in_thread, asked["threads"]) if "threads" in asked else (in_loop, asked["concurrency"])
    spec = bench.task(fn, priority="high" if urgent else "normal")
    for _ in range(places + 3):
        await bench.put(spec, {"name": "export"}, priority="normal")
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker(asked).run(stop))
    assert [await started.get() for _ in range(places)] == ["export"] * places
    await bench.put(spec, {"name": "email"}, priority="critical")
    if urgent:
        assert await started.get() == "email"
    others = [job.args for job in await bench.claim_as("another worker")]
    assert len(others) == 3 + (not urgent)
    assert started.empty()
    stop.set()
    loops_go_on.set()
    threads_go_on.set()
    assert (await work).succeeded == places + urgent


async def test_until_empty_waits_for_dependents_of_the_last_job(bench: Bench) -> None:
    async def noop() -> None: ...

    spec = bench.task(noop)
    first = await bench.put(spec)
    middle = await bench.put(spec, after=[first])
    last = await bench.put(spec, after=[middle])
    report = await bench.drain()
    assert report.succeeded == 3
    assert (await bench.view(last)).state is State.succeeded


async def test_a_stopped_worker_finishes_what_runs(bench: Bench) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        started.set()
        await go_on.wait()
        return "finished"

    id = await bench.put(bench.task(wait))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await started.wait()
    stop.set()
    go_on.set()
    report = await work
    assert (report.ending, report.succeeded) == ("stopped", 1)
    assert (await bench.view(id)).result == b'"finished"'


async def test_what_does_not_end_within_the_grace_is_handed_back_unspent(bench: Bench) -> None:
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    id = await bench.put(bench.task(endless))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"grace_ms": 10, "cleanup_ms": 10}).run(stop))
    await started.wait()
    stop.set()
    report = await work
    assert report.released == 1
    view = await bench.view(id)
    assert (view.state, view.attempt, view.lost) == (State.ready, 0, 0)


async def test_a_thread_that_outlives_the_grace_is_left_behind_and_fenced(bench: Bench) -> None:
    started, go_on = threading.Event(), threading.Event()

    def endless() -> str:
        started.set()
        go_on.wait(30)
        return "too late"

    id = await bench.put(bench.task(endless))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"grace_ms": 10, "cleanup_ms": 10}).run(stop))
    await asyncio.to_thread(started.wait)
    stop.set()
    report = await work
    go_on.set()
    assert report.released == 1
    view = await bench.view(id)
    assert (view.state, view.attempt) == (State.ready, 0)


async def test_held_jobs_are_handed_back_when_the_worker_stops(bench: Bench) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def quick() -> None:
        await asyncio.sleep(0)  # by the clock of this worker every look is a tenth of a second later

    async def wait() -> None:
        started.set()
        await go_on.wait()

    await bench.put(bench.task(quick))
    spec = bench.task(wait)
    ids = [await bench.put(spec) for _ in range(5)]
    stop = asyncio.Event()
    settings = {"concurrency": 1, "ahead_ms": 60_000}
    work = asyncio.create_task(bench.worker(settings, clock_s=(n / 10 for n in count()).__next__).run(stop))
    await started.wait()
    try:
        await bench.until(ids, State.running)  # one runs, and the others are held
        stop.set()
        await bench.until(ids[1:], State.ready)
    finally:
        go_on.set()  # not before: a worker that has not heard of its end would begin with the next
    report = await work
    assert (report.succeeded, report.released) == (2, 4)
    views = [await bench.view(id) for id in ids]
    assert [view.state for view in views] == [State.succeeded] + [State.ready] * 4
    assert [view.attempt for view in views[1:]] == [0] * 4


async def test_cancelling_the_worker_is_a_graceful_stop_and_a_second_time_forces_it(bench: Bench) -> None:
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    id = await bench.put(bench.task(endless))
    work = asyncio.create_task(bench.worker().run())
    await started.wait()
    work.cancel()
    await asyncio.wait({work}, timeout=0.01)
    assert not work.done()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await bench.view(id)).state is State.ready


async def test_a_worker_recycles_after_so_many_jobs(bench: Bench) -> None:
    async def noop() -> None: ...

    spec = bench.task(noop)
    for _ in range(30):
        await bench.put(spec)
    report = await bench.worker({"max_jobs": 5, "concurrency": 1}).run()
    assert report.ending == "recycled"
    assert 5 <= report.succeeded < 30
    assert (await bench.drain()).succeeded == 30 - report.succeeded


async def test_a_worker_recycles_above_its_memory_ceiling(bench: Bench) -> None:
    async def noop() -> None: ...

    bench.task(noop)
    report = await bench.worker({"max_memory_bytes": 1, "sweep_ms": 1}).run()
    assert report.ending == "recycled"


async def test_unknown_tasks_are_never_claimed(bench: Bench) -> None:
    async def known() -> None: ...

    async def unknown() -> None: ...

    theirs = await bench.put(bench.task(unknown))
    del bench.tasks["unknown"]
    await bench.put(bench.task(known))
    assert (await bench.drain()).succeeded == 1
    assert (await bench.view(theirs)).state is State.ready


async def test_a_worker_serves_only_its_queues_and_capabilities(bench: Bench) -> None:
    async def noop() -> None: ...

    spec = bench.task(noop)
    here = await bench.put(spec, queue="mail")
    elsewhere = await bench.put(spec, queue="export")
    needy = await bench.put(spec, queue="mail", needs=["gpu"])
    await bench.drain({"queues": ("mail",)})
    states = [(await bench.view(id)).state for id in (here, elsewhere, needy)]
    assert states == [State.succeeded, State.ready, State.ready]
    await bench.drain({"queues": ("mail",), "capabilities": ("gpu",)})
    assert (await bench.view(needy)).state is State.succeeded


async def test_two_event_loops_of_one_process_share_a_store(bench: Bench) -> None:
    async def noop(n: int) -> None: ...

    spec = bench.task(noop)
    jobs: list[Job] = []
    for n in range(300):
        id = n.to_bytes(16, "big")
        jobs.append(build_job(spec, {"n": n}, id=id)[0])
    await bench.store.enqueue(jobs)
    ended: list[int] = []

    def other_loop() -> None:
        report = asyncio.run(bench.drain())
        ended.append(report.succeeded)

    thread = threading.Thread(target=other_loop)
    thread.start()
    report = await bench.drain()
    await asyncio.to_thread(thread.join)
    assert report.succeeded + ended[0] == 300
    assert (await bench.store.count()).succeeded == 300


async def test_a_worker_runs_once(bench: Bench) -> None:
    async def noop() -> None: ...

    bench.task(noop)
    worker = bench.worker()
    await worker.run(until_empty=True)
    with pytest.raises(WorkerFailed, match="run already"):
        await worker.run()


async def test_a_stop_that_comes_before_the_run_counts(bench: Bench) -> None:
    async def noop() -> None: ...

    id = await bench.put(bench.task(noop))
    worker = bench.worker()
    worker.stop()
    assert (await worker.run()).ending == "stopped"
    assert (await bench.view(id)).attempt == 0
    assert await bench.store.sessions() == []


async def test_an_ended_worker_has_left(bench: Bench) -> None:
    async def noop() -> None: ...

    bench.task(noop)
    await bench.drain()
    assert await bench.store.sessions() == []
