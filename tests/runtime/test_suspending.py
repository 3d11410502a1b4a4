"""Jobs that sleep, wait for events and ask people: suspended without a worker, and remembered."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import Limpet
from limpet.core.errors import WaitTimeout
from limpet.core.flows.steps import Approval, waits_of
from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Signal
from limpet.core.jobs.state import State
from limpet.core.tasks.codec import decode_json
from limpet.runtime import JobContext, current_job
from limpet.runtime.steps import Steps
from limpet.runtime.suspension import Suspension, Wait
from limpet.stores.asking import attempts_of
from limpet.stores.base import RetryRequest
from tests.runtime.running import Bench, now_ms

HOUR_MS = 3_600_000
LONG_S = 60.0  # a lull in which whatever still runs beside a wait has called again


@pytest.fixture(autouse=True)
def _short_lulls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "lull_s", 0.1)


async def signal(bench: Bench, id: bytes, event: str, value: object = None) -> str:
    """Signal an event; the answer."""
    store: Any = bench.store
    (answer,) = await store.signal([Signal(id, event, msgspec.json.encode(value))])
    return str(answer)


async def result(bench: Bench, id: bytes) -> Any:
    view = await bench.view(id)
    assert view.state is State.succeeded, view
    return decode_json(view.result)


async def test_a_sleep_frees_the_worker_and_the_function_runs_again_with_its_steps_remembered(bench: Bench) -> None:
    runs: list[str] = []

    async def sleeps() -> str:
        job = current_job()
        runs.append("from the top")
        await job.step("before", lambda: runs.append("before"))
        await job.sleep(timedelta(hours=1))
        await job.step("after", lambda: runs.append("after"))
        return f"attempt {job.attempt}"

    id = await bench.put(bench.task(sleeps))
    started_at_ms = now_ms()
    report = await bench.drain()
    assert (report.suspended, report.run, report.ending) == (1, 1, "empty")
    view = await bench.view(id)
    assert (view.state, view.attempt, view.held) == (State.scheduled, 0, 0)
    assert started_at_ms + HOUR_MS <= view.due_at_ms <= now_ms() + HOUR_MS
    assert await attempts_of(bench.store, id) == ()
    assert await signal(bench, id, "sleep:sleep-1") == "woken"
    await bench.drain()
    assert await result(bench, id) == "attempt 1"
    assert runs == ["from the top", "before", "from the top", "after"]


async def test_a_sleep_is_over_when_its_time_is(bench: Bench) -> None:
    async def naps() -> str:
        await current_job().sleep(0.02, name="nap")
        await current_job().sleep(0)
        return "awake"

    id = await bench.put(bench.task(naps))
    report = await bench.drain({"linger_ms": 10_000})
    assert report.suspended == 2
    assert await result(bench, id) == "awake"


async def test_a_sleep_goes_on_where_it_was_when_its_job_runs_too_early(bench: Bench) -> None:
    async def sleeps() -> None:
        await current_job().sleep("1h")

    id = await bench.put(bench.task(sleeps))
    await bench.drain()
    due_at_ms = (await bench.view(id)).due_at_ms
    assert await bench.store.retry(RetryRequest((id,))) == ["retried"]
    await bench.drain()
    view = await bench.view(id)
    assert view.state is State.scheduled
    assert abs(view.due_at_ms - due_at_ms) < 60_000  # as planned, not an hour from now


async def test_a_sleeping_job_is_cancelled_at_once(bench: Bench) -> None:
    async def sleeps() -> None:
        await current_job().sleep("1h")

    id = await bench.put(bench.task(sleeps))
    await bench.drain()
    assert await bench.store.cancel([id], "not needed") == ["cancelled"]
    assert (await bench.view(id)).state is State.cancelled


async def test_time_asleep_is_not_the_attempts_time(bench: Bench) -> None:
    async def naps() -> str:
        await current_job().sleep(3.1)
        return "in time"

    id = await bench.put(bench.task(naps, timeout=3))
    await bench.drain({"linger_ms": 10_000})
    assert await result(bench, id) == "in time"


async def test_a_wait_answers_what_was_signalled_to_later_attempts_too(bench: Bench) -> None:
    seen: list[object] = []

    async def waits() -> None:
        seen.append(await current_job().wait_for("paid"))
        if len(seen) == 1:
            raise ConnectionError

    id = await bench.put(bench.task(waits, retry=[0]))
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.due_at_ms) == (State.scheduled, FOREVER_MS)
    assert [waiting.event for waiting in waits_of(view.notes, FOREVER_MS)] == ["paid"]
    assert await signal(bench, id, "paid", {"amount": 7}) == "woken"
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert seen == [{"amount": 7}] * 2


async def test_a_signal_before_the_wait_is_kept(bench: Bench) -> None:
    async def waits() -> object:
        return await current_job().wait_for("paid")

    id = await bench.put(bench.task(waits))
    assert await signal(bench, id, "paid", 7) == "kept"
    assert (await bench.drain()).suspended == 0
    assert await result(bench, id) == 7


async def test_a_signal_while_the_job_runs_is_found_when_it_waits(bench: Bench) -> None:
    async def waits(id: str) -> object:
        if not heard:
            heard.append(await signal(bench, bytes.fromhex(id.replace("-", "")), "paid", 7))
        return await current_job().wait_for("paid", timeout=0)

    heard: list[str] = []

    async def asks() -> object:
        return await waits(current_job().id)

    id = await bench.put(bench.task(asks))
    assert (await bench.drain()).suspended == 1
    assert heard == ["kept"]
    assert await result(bench, id) == 7


async def test_a_wait_that_is_over_stays_over(bench: Bench) -> None:
    over: list[int] = []

    async def waits() -> str:
        with pytest.raises(WaitTimeout) as raised:
            await current_job().wait_for("paid", timeout=0.01)
        assert isinstance(raised.value, TimeoutError)
        over.append(current_job().attempt)
        if len(over) == 1:
            raise ConnectionError  # and now the signal comes
        return "too late"

    id = await bench.put(bench.task(waits, retry=["1h"]))
    await bench.drain({"linger_ms": 10_000})
    assert over == [1]
    assert await signal(bench, id, "paid", 7) == "kept"
    await bench.store.retry(RetryRequest((id,)))
    await bench.drain()
    assert await result(bench, id) == "too late"


async def test_a_wait_that_is_over_and_nobody_catches_it_is_permanent_and_can_be_forgotten(bench: Bench) -> None:
    async def waits() -> object:
        return await current_job().wait_for("paid", timeout=0.01)

    id = await bench.put(bench.task(waits, retry=5))
    assert (await bench.drain({"linger_ms": 10_000})).dead == 1
    view = await bench.view(id)
    assert (view.error_type, view.attempt) == ("limpet.WaitTimeout", 1)
    assert "'paid' was not signalled in time" in view.reason
    assert f"limpet dead retry {id_text(id)} --forget paid" in view.reason
    assert "--forget paid" in view.reason
    await bench.store.retry(RetryRequest((id,), forget=("paid",)))
    assert await signal(bench, id, "paid", 7) == "kept"
    await bench.drain({"linger_ms": 10_000})
    assert await result(bench, id) == 7


async def test_the_time_to_wait_is_counted_from_when_it_was_first_reached(bench: Bench) -> None:
    async def waits() -> None:
        await current_job().wait_for("paid", timeout="1h")

    id = await bench.put(bench.task(waits))
    await bench.drain()
    before = await bench.view(id)
    await bench.store.retry(RetryRequest((id,)))
    await bench.drain()
    after = await bench.view(id)
    assert abs(after.due_at_ms - before.due_at_ms) < 60_000
    assert waits_of(after.notes, after.due_at_ms) == waits_of(before.notes, before.due_at_ms) != []


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_decides(bench: Bench, approved: bool) -> None:
    async def asks() -> list[object]:
        said = await current_job().approval("Pay 90 USD?", timeout="7d")
        assert isinstance(said, Approval)
        return [said.approved, said.by, said.comment]

    id = await bench.put(bench.task(asks))
    await bench.drain()
    decision = {"approved": approved, "by": "ada", "comment": "fine"}
    assert await signal(bench, id, "approval:approval", decision) == "woken"
    await bench.drain()
    assert await result(bench, id) == [approved, "ada", "fine"]


async def test_nobody_may_have_decided_in_time(bench: Bench) -> None:
    async def asks() -> None:
        await current_job().approval("Pay 90 USD?", timeout=0, name="the boss")

    id = await bench.put(bench.task(asks))
    await bench.drain()
    view = await bench.view(id)
    assert "no decision on 'the boss' was made in time" in view.reason
    assert f"limpet dead retry {id_text(id)} --forget 'the boss'" in view.reason


async def test_events_of_our_own_cannot_be_waited_for(bench: Bench) -> None:
    async def waits() -> None:
        await current_job().wait_for("approval:approval")

    id = await bench.put(bench.task(waits))
    await bench.drain()
    assert "is an event of Limpet's own" in (await bench.view(id)).reason


# -- several at once


async def test_waits_at_the_same_time(bench: Bench) -> None:
    async def waits() -> list[object]:
        job = current_job()
        return list(await asyncio.gather(job.wait_for("a"), job.wait_for("b"), job.sleep(0.01, name="nap")))

    id = await bench.put(bench.task(waits))
    await bench.drain({"linger_ms": 10_000})
    assert await signal(bench, id, "b", 2) == "woken"
    await bench.drain()
    assert await signal(bench, id, "a", 1) == "woken"
    await bench.drain()
    assert await result(bench, id) == [1, 2, None]


async def test_each_task_of_a_job_goes_on_with_its_own_event(bench: Bench) -> None:
    done: list[str] = []

    async def once(event: str) -> None:
        await current_job().wait_for(event)
        await current_job().step(f"after {event}", done.append, event)

    async def waits() -> None:
        await asyncio.gather(once("a"), once("b"))

    id = await bench.put(bench.task(waits))
    await bench.drain()
    for event in ("b", "a"):
        assert await signal(bench, id, event) == "woken"
        await bench.drain()
        assert done[-1] == event
    assert await result(bench, id) is None


async def test_a_task_whose_sleep_is_over_goes_on_while_another_waits(bench: Bench) -> None:
    reminded = asyncio.Event()

    async def turns() -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def reminds() -> None:
        await turns()
        Steps.lull_s = 0.1
        await current_job().sleep(0.01, name="patience")
        Steps.lull_s = LONG_S
        await turns()
        Steps.lull_s = 0.1
        await current_job().step("remind", reminded.set)

    async def asks() -> str:
        Steps.lull_s = LONG_S  # however long a slow machine takes for the turns
        said, _ = await asyncio.gather(current_job().approval("Pay 90 USD?"), reminds())
        return said.by

    id = await bench.put(bench.task(asks))
    await bench.drain({"linger_ms": 10_000})
    assert reminded.is_set()
    assert await signal(bench, id, "approval:approval", {"approved": True, "by": "ada"}) == "woken"
    await bench.drain()
    assert await result(bench, id) == "ada"


@pytest.mark.parametrize("itself", [True, False])
async def test_threads_of_a_sync_task_go_on_while_it_waits(bench: Bench, itself: bool) -> None:
    ran: list[str] = []

    def last() -> None:
        ran.append("three")
        Steps.lull_s = 0.1

    def works(job: JobContext) -> None:
        for name in ("one", "two"):
            job.run(job.step(name, ran.append, name))
        job.run(job.step("three", last))

    def waits() -> None:
        job = current_job()
        Steps.lull_s = LONG_S  # however long a slow machine keeps the thread between two steps
        with ThreadPoolExecutor() as threads:
            threads.submit(works, job)
            if itself:
                job.run(job.wait_for("paid"))
            else:
                threads.submit(job.run, job.wait_for("paid")).result()

    id = await bench.put(bench.task(waits))
    await bench.drain()
    assert ran == ["one", "two", "three"]
    assert await signal(bench, id, "paid") == "woken"
    await bench.drain()
    assert await result(bench, id) is None


async def test_a_job_is_suspended_before_its_time_is_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "lull_s", 60)

    async def waits() -> None:
        await asyncio.gather(current_job().wait_for("a"), current_job().wait_for("b"))

    await bench.put(bench.task(waits, timeout=5))
    assert (await bench.drain()).suspended == 1


async def test_a_handler_may_end_while_a_task_of_it_waits(bench: Bench) -> None:
    left: list[asyncio.Task[object]] = []

    async def ends() -> str:
        left.append(asyncio.create_task(current_job().wait_for("paid")))
        await current_job().step("first", asyncio.sleep, 0)
        return "ended"

    id = await bench.put(bench.task(ends))
    await bench.drain()
    assert await result(bench, id) == "ended"
    await asyncio.wait(left)
    assert left[0].cancelled()


@pytest.mark.parametrize("events", [("paid",), ("left",), ("left", "paid")])
async def test_the_first_of_several_events_may_be_enough(bench: Bench, events: tuple[str, ...]) -> None:
    async def first_of(*names: str) -> str:
        waits = [asyncio.create_task(current_job().wait_for(name), name=name) for name in names]
        done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        return min(task.get_name() for task in done if task.result() is not None)

    async def waits() -> str:
        first = await first_of("paid", "left")
        await current_job().wait_for("more")
        return first

    id = await bench.put(bench.task(waits))
    await bench.drain()
    assert await signal(bench, id, events[0], 1) == "woken"
    for event in events[1:]:
        assert await signal(bench, id, event, 1) == "kept"
    await bench.drain()
    view = await bench.view(id)
    assert [waiting.event for waiting in waits_of(view.notes, view.due_at_ms)] == ["more"]
    await signal(bench, id, "more")
    await bench.drain()
    assert await result(bench, id) in events


async def test_a_task_that_waits_for_tasks_of_its_own_does_not_keep_the_job(bench: Bench) -> None:
    async def inner() -> None:
        await current_job().step("before", lambda: None)
        await asyncio.gather(current_job().wait_for("a"), current_job().wait_for("b"))

    async def outer() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    id = await bench.put(bench.task(outer))
    for event in ("b", "a"):
        assert (await bench.drain()).suspended == 1
        assert await signal(bench, id, event) == "woken"
    await bench.drain()
    assert await result(bench, id) is None


async def test_the_first_of_several_sleeps_wakes_the_job(bench: Bench) -> None:
    async def sleeps() -> None:
        job = current_job()
        await asyncio.gather(job.sleep("2h", name="long"), job.sleep("1h", name="short"))

    id = await bench.put(bench.task(sleeps))
    await bench.drain()
    assert abs((await bench.view(id)).due_at_ms - now_ms() - HOUR_MS) < 60_000


async def test_a_step_beside_a_sleep_is_recorded_before_the_job_is_suspended(bench: Bench) -> None:
    paid: list[str] = []

    async def pays() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        paid.append(current_job().step_key)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(current_job().sleep(0.01, name="nap"))
            group.create_task(current_job().step("pays", pays))

    id = await bench.put(bench.task(both))
    report = await bench.drain({"linger_ms": 10_000})
    assert (report.suspended, report.succeeded) == (1, 1)
    assert len(paid) == 1
    assert (await bench.view(id)).state is State.succeeded


def test_the_first_end_and_any_event_wake_a_job_that_waits_for_several() -> None:
    nap, paid, sent = Wait("sleep:nap", 5_000, "nap"), Wait("paid", None, "paid"), Wait("sent", 3_000, "sent")
    several = Suspension.of([nap, paid, sent, paid], 1_000)
    assert (several.delay_ms, str(several)) == (2_000, "nap, paid, sent, paid")
    assert (Suspension.of([paid], 1_000).delay_ms, Suspension.of([nap], 9_000).delay_ms) == (None, 0)
    assert several.again().events == several.events == ("sleep:nap", "paid", "sent")


async def test_a_task_that_fails_beside_a_sleep_fails_the_attempt(bench: Bench) -> None:
    async def fails_when_it_is_told_to_end() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise LookupError("beside") from None

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails_when_it_is_told_to_end())
            group.create_task(current_job().sleep("1h", name="nap"))

    id = await bench.put(bench.task(both))
    assert (await bench.drain()).dead == 1
    assert (await bench.view(id)).state is State.dead


async def test_a_sleep_beside_the_function_needs_a_name(bench: Bench) -> None:
    async def both() -> None:
        await asyncio.gather(current_job().sleep(1), current_job().sleep(2))

    id = await bench.put(bench.task(both))
    await bench.drain()
    assert 'name it: sleep(60, name="cooldown")' in (await bench.view(id)).reason


async def test_a_sleep_of_a_task_may_be_forgotten(bench: Bench) -> None:
    """What came after it in its task is recorded: it does not wait for that, and a new step that does lets it sleep."""
    ran: list[str] = []

    async def naps() -> None:
        await current_job().sleep(0, name="nap")
        await current_job().step("after", ran.append, "after")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(naps())
            if "after" in ran:
                group.create_task(current_job().step("new", ran.append, "new"))
        if "new" not in ran:
            raise ConnectionError

    id = await bench.put(bench.task(both))
    await bench.drain()
    assert ran == ["after"]
    await bench.store.retry(RetryRequest((id,), forget=("nap",)))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert ran == ["after", "new"]


# -- handlers that stand in the way


async def catches_all(job: JobContext) -> str:
    with contextlib.suppress(BaseException):
        await job.sleep("1h")
    return "went on"


async def gathers_all(job: JobContext) -> str:
    await asyncio.gather(job.wait_for("paid"), return_exceptions=True)
    return "went on"


async def returns_in_finally(job: JobContext) -> str:
    try:
        await job.approval("May I?")
    finally:
        return "went on"  # noqa: B012  # that is the mistake


@pytest.mark.parametrize("wrong", [catches_all, gathers_all, returns_in_finally])
async def test_a_handler_that_catches_its_suspension_is_told(
    bench: Bench, wrong: Callable[[JobContext], Awaitable[str]]
) -> None:
    async def handler() -> str:
        return await wrong(current_job())

    id = await bench.put(bench.task(handler, retry=5))
    assert (await bench.drain()).dead == 1
    view = await bench.view(id)
    assert (view.error_type, view.attempt) == ("limpet.SuspensionCaught", 1)
    assert "returned although it was suspended" in view.reason


async def test_a_handler_that_caught_it_cannot_go_on_to_its_next_step(bench: Bench) -> None:
    ran: list[str] = []

    async def handler() -> str:
        with contextlib.suppress(BaseException):
            await current_job().sleep("1h")
        await current_job().step("next", lambda: ran.append("next"))
        return "never"

    id = await bench.put(bench.task(handler))
    assert (await bench.drain()).suspended == 1
    assert (await bench.view(id)).state is State.scheduled
    assert ran == []


async def test_cleaning_up_on_the_way_out_is_fine(bench: Bench) -> None:
    closed: list[str] = []

    async def handler() -> None:
        try:
            await current_job().sleep("1h")
        except Exception:
            closed.append("an error")  # it is none
        finally:
            closed.append("closed")

    id = await bench.put(bench.task(handler))
    await bench.drain()
    assert closed == ["closed"]
    assert (await bench.view(id)).state is State.scheduled


async def test_middleware_sees_it_pass(bench: Bench) -> None:
    passed: list[str] = []

    async def watch(job: JobContext, run: Callable[[], Awaitable[object]]) -> object:
        try:
            return await run()
        except BaseException as error:
            passed.append(type(error).__name__)
            raise

    async def sleeps() -> None:
        await current_job().sleep("1h")

    await bench.put(bench.task(sleeps))
    await bench.drain(middleware=[watch])
    assert passed == ["Suspension"]


# -- sync tasks, and a worker that stops


async def test_a_sync_task_sleeps_and_waits_through_its_workers_loop(bench: Bench) -> None:
    threads: set[int] = set()

    def waits() -> list[object]:
        job = current_job()
        threads.add(threading.get_ident())
        job.run(job.sleep(0.01))
        return [job.run(job.wait_for("paid")), job.run(job.approval("Go on?")).by]

    id = await bench.put(bench.task(waits))
    await bench.drain({"linger_ms": 10_000})
    assert await signal(bench, id, "paid", 7) == "woken"
    await bench.drain()
    assert await signal(bench, id, "approval:approval", {"approved": True, "by": "ada"}) == "woken"
    report = await bench.drain()
    assert report.suspended == 0
    assert await result(bench, id) == [7, "ada"]


async def test_a_sync_task_that_catches_its_suspension_is_told(bench: Bench) -> None:
    def handler() -> str:
        with contextlib.suppress(BaseException):
            current_job().run(current_job().sleep("1h"))
        return "went on"

    id = await bench.put(bench.task(handler))
    await bench.drain()
    assert (await bench.view(id)).error_type == "limpet.SuspensionCaught"


async def test_a_sync_task_may_use_the_bridge_of_its_app(tmp_path: Path) -> None:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db?sync=normal")

    @app.task(name="naps")
    def naps() -> int:
        app.run(current_job().sleep(0))  # needs no name: it is the function's own call
        return app.run(current_job().step("two", lambda: 2))

    async with app:
        job = await naps.enqueue()
        await app.work(until_empty=True)
        assert await job.result() == 2


async def test_a_worker_that_drains_does_not_wait_for_sleepers(bench: Bench) -> None:
    async def sleeps() -> None:
        await current_job().sleep("30d")

    await bench.put(bench.task(sleeps))
    report = await bench.drain()
    assert (report.ending, report.suspended) == ("empty", 1)
