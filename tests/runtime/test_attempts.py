"""One attempt: what a handler does, and what becomes of its job."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextvars import ContextVar
from email.utils import formatdate

import pytest

from limpet.core.endings.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Limit
from limpet.runtime import current_job
from limpet.stores.asking import attempts_of
from tests.runtime.running import Bench, now_ms


async def test_an_error_is_retried_until_the_attempts_are_spent(bench: Bench) -> None:
    seen: list[int] = []

    async def fails() -> None:
        seen.append(current_job().attempt)
        raise ConnectionError("no route")

    id = await bench.put(bench.task(fails, retry=[0, 0]))
    report = await bench.drain()
    assert seen == [1, 2, 3]
    assert (report.retried, report.dead) == (2, 1)
    view = await bench.view(id)
    assert (view.state, view.error_type) == (State.dead, "ConnectionError")
    assert [attempt.number for attempt in await attempts_of(bench.store, id)] == [1, 2, 3]


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_traceback_begins_in_the_users_code(bench: Bench, *, blocking: bool) -> None:
    async def fails() -> None:
        raise ConnectionError("no route")

    def fails_in_a_thread() -> None:
        raise ConnectionError("no route")

    id = await bench.put(bench.task(fails_in_a_thread if blocking else fails))
    await bench.drain()
    (attempt,) = await attempts_of(bench.store, id)
    first = next(line for line in attempt.traceback.splitlines() if line.startswith("  File "))
    assert __file__ in first, attempt.traceback


async def test_what_the_library_refuses_by_itself_has_no_traceback(bench: Bench) -> None:
    def ship(order: int) -> object:
        return object()

    def moved(order: int, country: str) -> None: ...

    unreturnable = await bench.put(bench.task(ship), {"order": 1})
    misfit = await bench.put(bench.task(moved, name="ship"), {"order": 1, "country": "nl"})
    bench.task(ship)  # the code of before
    await bench.drain()
    for id, says in ((unreturnable, "has no stored form"), (misfit, "has no parameter 'country'")):
        (attempt,) = await attempts_of(bench.store, id)
        assert says in attempt.message
        assert attempt.traceback == "", "frames of the library alone, which say nothing about the job"


async def test_what_the_library_refuses_while_code_of_the_app_runs_has_its_frames(bench: Bench) -> None:
    def limits() -> None:
        Limit("key", rate="many")

    id = await bench.put(bench.task(limits))
    await bench.drain()
    (attempt,) = await attempts_of(bench.store, id)
    assert "in limits" in attempt.traceback


@pytest.mark.parametrize(
    ("signal", "state", "attempt"),
    [
        (RetryLater(3600), State.scheduled, 1),
        (Snooze(3600), State.scheduled, 0),
        (Dead("bad address"), State.dead, 1),
        (Cancel("no longer wanted"), State.cancelled, 1),
        (RateLimited(retry_after=3600), State.ready, 0),
    ],
)
async def test_a_signal_decides_the_jobs_fate(bench: Bench, signal: Exception, state: State, attempt: int) -> None:
    async def asks() -> None:
        raise signal

    id = await bench.put(bench.task(asks, retry=[1, 1]))
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.attempt) == (state, attempt)


async def test_a_429_that_names_an_instant_holds_until_then(bench: Bench) -> None:
    class Refused(Exception):
        status_code = 429

        def __init__(self) -> None:
            self.headers = {"retry-after": formatdate(time.time() + 60, usegmt=True)}  # and no Date to compare it with

    async def calls() -> None:
        raise Refused

    await bench.put(bench.task(calls))
    await bench.drain()
    (gate,) = await bench.store.gates("task:calls")
    assert 50_000 < gate.held_until_ms - now_ms() < 70_000


async def test_a_template_names_the_jobs_own_key(bench: Bench) -> None:
    async def asks(model: str) -> None:
        raise RateLimited(60, key="model:{model}")

    limits = [Limit("account", concurrency=5), Limit("model:{model}", rate="10/s")]
    await bench.put(bench.task(asks, limits=limits), {"model": "big"})
    await bench.drain()
    held = [gate.key for gate in await bench.store.gates() if gate.held_until_ms > now_ms()]
    assert held == ["limit:model:big"]


async def test_a_soft_timeout_lets_the_handler_clean_up_and_counts_as_timeout(bench: Bench) -> None:
    cleaned = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    id = await bench.put(bench.task(slow, timeout=0.02))
    await bench.drain()
    assert cleaned.is_set()
    (attempt,) = await attempts_of(bench.store, id)
    assert (attempt.outcome, attempt.kind) == ("dead", "timeout")


async def test_a_handler_that_ignores_its_timeout_is_abandoned_and_its_slot_is_free_again(bench: Bench) -> None:
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except TimeoutError:
                continue

    async def next_one() -> str:
        return "ran"

    stuck = await bench.put(bench.task(stubborn, timeout=0.02, hard_timeout=0.04))
    after = await bench.put(bench.task(next_one))
    report = await bench.drain({"concurrency": 1, "cleanup_ms": 10})
    let_go.set()
    assert (report.dead, report.succeeded) == (1, 1)
    (attempt,) = await attempts_of(bench.store, stuck)
    assert attempt.kind == "timeout"
    assert "hard timeout" in attempt.message
    assert (await bench.view(after)).result == b'"ran"'


async def test_a_thread_out_of_time_sees_it_and_is_abandoned_at_the_hard_timeout(bench: Bench) -> None:
    saw, let_go = threading.Event(), threading.Event()

    def stubborn() -> None:
        job = current_job()
        while not let_go.wait(0.005):
            if job.cancelled:
                saw.set()

    def next_one() -> str:
        return "ran"

    stuck = await bench.put(bench.task(stubborn, timeout=0.02, hard_timeout=0.1))
    after = await bench.put(bench.task(next_one))
    report = await bench.drain({"concurrency": 1, "threads": 1})
    assert await asyncio.to_thread(saw.wait, 60)
    let_go.set()
    assert (report.dead, report.succeeded) == (1, 1)
    assert (await attempts_of(bench.store, stuck))[0].kind == "timeout"
    assert (await bench.view(after)).result == b'"ran"'


async def test_a_thread_that_ends_after_its_soft_timeout_has_succeeded(bench: Bench) -> None:
    def slow() -> str:
        job = current_job()
        while not job.cancelled:
            threading.Event().wait(0.001)
        return "done all the same"

    id = await bench.put(bench.task(slow, timeout=0.02, hard_timeout=30))
    await bench.drain()
    assert (await bench.view(id)).result == b'"done all the same"'


async def test_cancelling_a_running_job_raises_inside_an_async_handler(bench: Bench) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    id = await bench.put(bench.task(endless))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await started.wait()
    assert await bench.store.cancel([id], "why") == ["cancelling"]
    view = await bench.store.watch(id, 60_000)
    stop.set()
    report = await work
    assert cancelled.is_set()
    assert view is not None
    assert (view.state, report.cancelled) == (State.cancelled, 1)


async def test_a_job_that_is_cancelled_by_force_is_stopped_too(bench: Bench) -> None:
    stopped, seen = asyncio.Event(), asyncio.Event()
    started: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def endless() -> None:
        started.put_nowait("endless")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    def endless_in_a_thread() -> None:
        job = current_job()
        loop.call_soon_threadsafe(started.put_nowait, "in a thread")
        while not job.cancelled:
            threading.Event().wait(0.005)
        loop.call_soon_threadsafe(seen.set)

    async def stays() -> None:
        started.put_nowait("stays")
        await seen.wait()

    ids = [await bench.put(bench.task(endless)), await bench.put(bench.task(endless_in_a_thread))]
    other = await bench.put(bench.task(stays))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 60_000, "ttl_ms": 180_000}).run(stop))
    for _ in range(3):
        await started.get()
    await bench.store.cancel(ids, "away with it", force=True)
    async with asyncio.timeout(30):  # less than a beat
        await stopped.wait()
        await seen.wait()
    assert (await bench.store.watch(other, 60_000)) is not None
    stop.set()
    report = await work
    assert (report.succeeded, report.stale) == (1, 0)
    assert {(await bench.view(id)).state for id in ids} == {State.cancelled}


async def test_a_sync_handler_sees_the_request_and_its_success_wins(bench: Bench) -> None:
    started = threading.Event()

    def polite() -> str:
        started.set()
        while not current_job().cancelled:
            threading.Event().wait(0.001)
        return "finished first"

    id = await bench.put(bench.task(polite))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await asyncio.to_thread(started.wait)
    await bench.store.cancel([id], "why")
    view = await bench.store.watch(id, 60_000)
    stop.set()
    await work
    assert view is not None
    assert (view.state, view.result) == (State.succeeded, b'"finished first"')


async def test_exiting_inside_a_job_fails_the_job_not_the_worker(bench: Bench) -> None:
    async def leaves() -> None:
        sys.exit(3)

    def leaves_from_a_thread() -> None:
        sys.exit(4)

    async def stays() -> None: ...

    first = await bench.put(bench.task(leaves))
    second = await bench.put(bench.task(leaves_from_a_thread))
    third = await bench.put(bench.task(stays))
    await bench.drain()
    states = [(await bench.view(id)).state for id in (first, second, third)]
    assert states == [State.dead, State.dead, State.succeeded]


async def test_a_job_taken_away_by_force_is_stopped_and_its_end_is_nobodys_business(bench: Bench) -> None:
    runs, stopped = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    id = await bench.put(bench.task(slow))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await runs.wait()
    assert await bench.store.cancel([id], "at once", force=True) == ["cancelled"]
    await stopped.wait()
    stop.set()
    report = await work
    assert (await bench.view(id)).state is State.cancelled
    assert (report.succeeded, report.stale) == (0, 0)


async def test_a_cancellation_nobody_asked_for_is_a_failure(bench: Bench) -> None:
    async def confused() -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    async def stays() -> None: ...

    confused_id = await bench.put(bench.task(confused))
    fine = await bench.put(bench.task(stays))
    await bench.drain({"concurrency": 1})
    assert (await bench.view(confused_id)).state is State.dead
    assert (await bench.view(fine)).state is State.succeeded


async def test_timeouts_and_task_groups_work_inside_a_handler(bench: Bench) -> None:
    async def structured() -> list[str]:
        found: list[str] = []
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            found.append("timeout")
        async with asyncio.TaskGroup() as group:
            one = group.create_task(asyncio.sleep(0, "one"))
        found.append(one.result())
        return found

    ids = [await bench.put(bench.task(structured)) for _ in range(3)]
    await bench.drain({"concurrency": 1})
    assert [(await bench.view(id)).result for id in ids] == [b'["timeout","one"]'] * 3


async def test_a_soft_timeout_leaves_no_trace_on_the_next_job_of_the_same_runner(bench: Bench) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    async def counts() -> int:
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    await bench.put(bench.task(slow, timeout=0.01))
    after = await bench.put(bench.task(counts))
    await bench.drain({"concurrency": 1})
    assert (await bench.view(after)).result == b"0"


async def test_context_variables_do_not_leak_from_job_to_job(bench: Bench) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="clean")

    async def dirty() -> str:
        before = variable.get()
        variable.set("dirty")
        await asyncio.sleep(0)
        assert variable.get() == "dirty"
        return before

    ids = [await bench.put(bench.task(dirty)) for _ in range(3)]
    await bench.drain({"concurrency": 1})
    assert [(await bench.view(id)).result for id in ids] == [b'"clean"'] * 3


async def test_arguments_that_no_longer_fit_are_dead_with_their_bytes_kept(bench: Bench) -> None:
    async def old(n: str) -> None: ...

    async def new(n: int) -> None: ...

    id = await bench.put(bench.task(old, name="same"), {"n": "text"})
    bench.task(new, name="same", retry=[0, 0, 0])
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.args) == (State.dead, b'{"n":"text"}')
    assert (await attempts_of(bench.store, id))[0].kind == "permanent"


@pytest.mark.parametrize("result", ["x" * 100, object()])
async def test_a_result_that_cannot_be_stored_is_dead_at_once(bench: Bench, result: object) -> None:
    async def returns() -> object:
        return result

    id = await bench.put(bench.task(returns, retry=[0, 0, 0], max_result_bytes=50))
    await bench.drain()
    assert (await bench.view(id)).state is State.dead
    assert len(await attempts_of(bench.store, id)) == 1


async def test_every_attempt_leaves_one_line_with_its_facts(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def works() -> None: ...

    async def fails() -> None:
        raise ValueError("of no use")

    caplog.set_level(logging.INFO, logger="limpet.worker")
    good = await bench.put(bench.task(works), queue="mail")
    await bench.put(bench.task(fails), queue="mail")
    await bench.drain({"queues": ("mail",), "concurrency": 1})
    lines = {line["event"]: line for record in caplog.records if "job_id" in (line := record.__dict__["limpet"])}
    assert set(lines) == {"job succeeded", "job dead"}
    facts = lines["job succeeded"]
    assert (facts["job_id"], facts["queue"], facts["task"], facts["attempt"]) == (id_text(good), "mail", "works", 1)
    assert facts["duration_ms"] >= 0
    assert lines["job dead"]["error"] == "ValueError: of no use"
