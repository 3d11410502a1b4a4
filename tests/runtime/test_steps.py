"""Durable steps: run once, recorded under the lease, answered by every later attempt."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from limpet.core.endings.signals import Dead, RetryLater, Snooze
from limpet.core.endings.transition import Drop
from limpet.core.errors import StepFailed, StoreUnreachable, WrongContext
from limpet.core.flows.steps import History
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.state import State
from limpet.core.tasks.codec import decode_json
from limpet.runtime import LeaseLost, WorkerEvents, current_job
from limpet.runtime.attempt import Attempt, Cause
from limpet.runtime.keeper import StoreChannel
from limpet.runtime.steps import Steps
from limpet.stores.base import RetryRequest
from tests.runtime.running import Bench

FAILS_ONCE = [0]  # retry at once


@pytest.fixture
def ran() -> list[str]:
    """The steps whose functions have run."""
    return []


def says(ran: list[str], name: str, value: Any = None) -> Callable[[], Any]:
    """A function that leaves its name."""

    def say() -> Any:
        ran.append(name)
        return value

    return say


async def ended(bench: Bench, id: bytes) -> tuple[State, Any]:
    """How a job ended, and with what."""
    view = await bench.view(id)
    return view.state, decode_json(view.result) if view.state is State.succeeded else view.reason


async def test_a_step_runs_once_and_later_attempts_are_answered(bench: Bench, ran: list[str]) -> None:
    async def pays() -> list[object]:
        job = current_job()
        charge = await job.step("charge", says(ran, "charge", {"id": "ch_1"}))
        receipt = await job.step("receipt", says(ran, "receipt"))
        if job.attempt == 1:
            raise ConnectionError
        mail = await job.step("mail", says(ran, "mail", 7))
        return [charge, receipt, mail]

    id = await bench.put(bench.task(pays, retry=FAILS_ONCE))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, [{"id": "ch_1"}, None, 7])
    assert ran == ["charge", "receipt", "mail"]


async def test_functions_of_every_kind_are_steps(bench: Bench) -> None:
    async def double(number: int, *, plus: int = 0) -> int:
        await asyncio.sleep(0)
        return 2 * number + plus

    def half(number: int) -> float:
        return number / 2

    class Caller:
        async def __call__(self, number: int) -> int:
            return number + 1

        def method(self, number: int) -> int:
            return number - 1

    async def calls() -> list[float]:
        step = current_job().step
        return [
            await step("async", double, 4, plus=1),
            await step("plain", half, 4),
            await step("partial", partial(double, plus=2), 4),
            await step("lambda", lambda: double(5)),
            await step("object", Caller(), 4),
            await step("method", Caller().method, 4),
        ]

    id = await bench.put(bench.task(calls))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, [9, 2.0, 10, 10, 5, 3])


async def test_a_plain_function_does_not_block_the_loop(bench: Bench) -> None:
    turned = threading.Event()

    def blocks() -> bool:
        return turned.wait(60)

    async def waits() -> bool:
        asyncio.get_running_loop().call_soon(turned.set)
        return await current_job().step("blocks", blocks)

    id = await bench.put(bench.task(waits))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, True)


@dataclass
class Invoice:
    number: int
    due: datetime


async def test_a_result_is_rebuilt_from_the_annotation_on_the_first_run_as_on_later_ones(bench: Bench) -> None:
    seen: list[object] = []

    def invoice() -> Invoice:
        return Invoice(7, datetime(2026, 5, 1, tzinfo=UTC))

    def pair():  # type: ignore[no-untyped-def]  # without an annotation
        return 1, 2

    async def bills() -> None:
        seen.append([await current_job().step("invoice", invoice), await current_job().step("pair", pair)])
        if current_job().attempt == 1:
            raise ConnectionError

    await bench.put(bench.task(bills, retry=FAILS_ONCE))
    await bench.drain()
    assert seen[0] == [Invoice(7, datetime(2026, 5, 1, tzinfo=UTC)), [1, 2]]
    assert seen[1] == seen[0]


async def test_an_error_is_not_recorded_and_the_step_runs_again_with_the_same_key(bench: Bench) -> None:
    keys: list[str] = []

    def charge() -> None:
        keys.append(current_job().step_key)
        if len(keys) == 1:
            raise ConnectionError

    async def pays() -> None:
        await current_job().step("charge", charge)

    id = await bench.put(bench.task(pays, retry=FAILS_ONCE))
    await bench.drain()
    assert keys == [f"{id_text(id)}:charge"] * 2
    assert (await bench.view(id)).state is State.succeeded


async def test_a_kept_error_is_met_again_by_later_attempts(bench: Bench, ran: list[str]) -> None:
    met: list[str] = []

    def refuses() -> None:
        ran.append("refuses")
        raise LookupError("no such card")

    async def pays() -> str:
        job = current_job()
        try:
            await job.step.options(on_error="keep")("charge", refuses)
        except StepFailed as error:
            met.append(f"{error.step}: {error.error}")
        await job.step("bill", says(ran, "bill"))
        if job.attempt == 1:
            raise ConnectionError
        return "billed"

    id = await bench.put(bench.task(pays, retry=FAILS_ONCE))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, "billed")
    assert met == ["charge: LookupError: no such card"] * 2
    assert ran == ["refuses", "bill"]


async def test_a_kept_error_that_nobody_catches_is_permanent(bench: Bench) -> None:
    def refuses() -> None:
        raise ConnectionError("away")

    async def pays() -> None:
        await current_job().step.options(on_error="keep")("charge", refuses)

    id = await bench.put(bench.task(pays, retry=5))
    assert (await bench.drain()).dead == 1
    view = await bench.view(id)
    assert (view.error_type, view.attempt) == ("limpet.StepFailed", 1)
    assert "step 'charge' failed: ConnectionError: away" in view.reason
    assert f"`limpet dead retry {id_text(id)} --forget charge` runs it again" in view.reason


@pytest.mark.parametrize("fn", [None, "charge"])
async def test_a_step_needs_a_function(bench: Bench, fn: Any) -> None:
    async def pays() -> None:
        await current_job().step("charge", fn)

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert f"step 'charge' is given {fn!r}, which cannot be called" in (await bench.view(id)).reason


async def test_what_a_step_says_about_its_job_is_never_kept(bench: Bench) -> None:
    said: list[type[Exception]] = [RetryLater, Dead]

    def speaks() -> None:
        kind = said.pop(0)
        raise kind(0) if kind is RetryLater else kind("no use")

    async def asks() -> None:
        await current_job().step.options(on_error="keep", retry=5)("speak", speaks)

    id = await bench.put(bench.task(asks, retry=5))
    report = await bench.drain()
    assert (report.retried, report.dead) == (1, 1)
    assert (await bench.view(id)).reason == "no use"


class Answered(Exception):
    """What an SDK raises for an answer with this status."""

    def __init__(self, status_code: int, **headers: str) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Answered(429), State.ready),
        (Answered(402), State.ready),
        (ExceptionGroup("tasks", [Answered(429)]), State.ready),
        (ExceptionGroup("tasks", [Snooze(60)]), State.scheduled),
    ],
)
async def test_what_holds_a_key_or_puts_a_job_off_is_not_kept(bench: Bench, error: Exception, state: State) -> None:
    def calls() -> None:
        raise error

    async def asks() -> None:
        await current_job().step.options(on_error="keep", retry=[0])("call", calls)

    id = await bench.put(bench.task(asks))
    assert (await bench.drain()).dead == 0
    view = await bench.view(id)
    assert (view.state, view.attempt) == (state, 0)


async def test_a_step_may_be_tried_again_within_the_attempt(bench: Bench) -> None:
    tries: Counter[str] = Counter()

    def passes() -> int:
        tries["passes"] += 1
        if tries["passes"] < 3:
            raise ConnectionError
        return tries["passes"]

    def mistaken() -> None:
        tries["mistaken"] += 1
        raise TypeError("wrong call")

    def hopeless() -> None:
        tries["hopeless"] += 1
        raise ValueError("the task says that this does not pass")

    async def tries_hard() -> None:
        step = current_job().step.options(retry=[0, 0])
        assert await step("passes", passes) == 3
        with pytest.raises(ValueError, match="the task says"):
            await step("hopeless", hopeless)
        await step("mistaken", mistaken)

    id = await bench.put(bench.task(tries_hard, classify={ValueError: "permanent"}))
    await bench.drain()
    assert tries == {"passes": 3, "hopeless": 1, "mistaken": 1}
    assert (await bench.view(id)).attempt == 1


async def test_a_step_is_tried_again_no_sooner_than_the_answer_says(bench: Bench) -> None:
    tried_at_s: list[float] = []

    def calls(error: Exception) -> None:
        tried_at_s.append(time.monotonic())
        raise error

    async def asks(hours: bool) -> None:
        error = Answered(503, retry_after="3600") if hours else Answered(503, retry_after_ms="30")
        await current_job().step.options(retry=[0])("call", calls, error)

    await bench.put(bench.task(asks), {"hours": False})
    assert (await bench.drain()).dead == 1  # and no retry of the job is due while the next one runs
    first, second = tried_at_s
    assert second - first >= 0.03
    tried_at_s.clear()
    id = await bench.put(bench.task(asks, retry=[0]), {"hours": True})
    await bench.drain()
    assert len(tried_at_s) == 1  # the job waits for as long, and no slot
    view = await bench.view(id)
    assert view.due_at_ms - view.enqueued_at_ms >= 3_600_000


async def test_a_name_is_used_once_in_an_attempt(bench: Bench, ran: list[str]) -> None:
    async def twice() -> None:
        for _ in range(2):
            await current_job().step("again", says(ran, "again"))

    id = await bench.put(bench.task(twice, retry=5))
    assert (await bench.drain()).dead == 1
    view = await bench.view(id)
    assert view.error_type == "limpet.InvalidStep"
    assert "the name 'again' is used twice in one job" in view.reason
    assert ran == ["again"]


async def test_a_step_inside_a_step_is_refused(bench: Bench) -> None:
    refused: list[str] = []

    async def outer() -> None:
        job = current_job()
        calls: list[Awaitable[Any]] = [job.step("inner", list), job.sleep(1), job.wait_for("paid"), job.approval("?")]
        for call in calls:
            try:
                await call
            except Exception as error:
                refused.append(str(error))

    async def nests() -> None:
        await current_job().step("outer", outer)

    await bench.put(bench.task(nests))
    await bench.drain()
    assert len(refused) == 4
    assert all("is called inside step 'outer'" in text for text in refused)


async def test_the_key_belongs_to_a_step(bench: Bench) -> None:
    async def asks() -> str:
        job = current_job()
        with pytest.raises(WrongContext, match="no step's function runs here"):
            _ = job.step_key
        await job.step("one", dict)
        with pytest.raises(WrongContext):
            _ = job.step_key
        return await job.step("two", lambda: job.step_key)

    id = await bench.put(bench.task(asks))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, f"{id_text(id)}:two")


@pytest.mark.parametrize("value", [object(), "x" * 262_144, float("nan")])
async def test_a_result_that_cannot_be_kept_names_its_step(bench: Bench, value: object) -> None:
    async def returns() -> None:
        await current_job().step("big", lambda: value)

    id = await bench.put(bench.task(returns, retry=5))
    assert (await bench.drain()).dead == 1
    assert (await bench.view(id)).reason.startswith("step 'big': the result")


async def test_steps_at_the_same_time(bench: Bench, ran: list[str]) -> None:
    async def gathers() -> list[int]:
        job = current_job()
        numbers = await asyncio.gather(*(job.step(f"page-{n}", says(ran, f"page-{n}", n)) for n in range(5)))
        if job.attempt == 1:
            raise ConnectionError
        return [*numbers, await job.step("sum", says(ran, "sum", sum(numbers)))]

    id = await bench.put(bench.task(gathers, retry=FAILS_ONCE))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, [0, 1, 2, 3, 4, 10])
    assert Counter(ran) == Counter([*(f"page-{n}" for n in range(5)), "sum"])


async def test_tasks_with_several_steps_each_are_remembered_whatever_their_speed(bench: Bench, ran: list[str]) -> None:
    async def one_by_one(name: str, turns: int) -> None:
        for _ in range(turns * (current_job().attempt == 1)):
            await asyncio.sleep(0)
        await current_job().step(f"{name}-1", says(ran, f"{name}-1"))
        await current_job().step(f"{name}-2", says(ran, f"{name}-2"))

    async def branches() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(one_by_one("slow", 50))
            group.create_task(one_by_one("fast", 0))
        if current_job().attempt == 1:
            raise ConnectionError
        await current_job().step("end", says(ran, "end"))

    id = await bench.put(bench.task(branches, retry=FAILS_ONCE))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert Counter(ran) == Counter(["slow-1", "slow-2", "fast-1", "fast-2", "end"])


async def test_a_task_that_catches_an_error_of_its_step_goes_the_same_way_again(bench: Bench, ran: list[str]) -> None:
    def fails() -> None:
        ran.append("try")
        raise ConnectionError

    async def tries() -> None:
        try:
            await current_job().step("try", fails)
        except ConnectionError:
            await current_job().step("instead", ran.append, "instead")

    async def both() -> None:
        await asyncio.gather(tries(), current_job().step("other", ran.append, "other"))
        if current_job().attempt == 1:
            raise ConnectionError

    id = await bench.put(bench.task(both, retry=FAILS_ONCE))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert Counter(ran) == {"try": 2, "instead": 1, "other": 1}


async def test_an_attempt_ends_when_its_steps_have(bench: Bench, ran: list[str]) -> None:
    """A step that runs while another one fails is still recorded."""
    failed = asyncio.Event()

    async def fails() -> None:
        failed.set()
        if current_job().attempt == 1:
            raise ConnectionError

    async def pays() -> None:
        await failed.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        ran.append("pays")

    async def both() -> None:
        await asyncio.gather(current_job().step("fails", fails), current_job().step("pays", pays))

    id = await bench.put(bench.task(both, retry=FAILS_ONCE))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert ran == ["pays"]


async def test_an_attempt_does_not_wait_for_what_a_task_does_after_its_step(bench: Bench) -> None:
    left: list[asyncio.Task[None]] = []
    beside = asyncio.Event()

    async def goes_on() -> None:
        await current_job().step("beside", beside.set)
        await asyncio.Event().wait()

    async def leaves() -> None:
        left.append(asyncio.create_task(goes_on()))
        await beside.wait()

    id = await bench.put(bench.task(leaves, timeout=30))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert [note.name for note in (await bench.view(id)).notes] == ["beside"]
    left[0].cancel()


async def test_a_task_that_outlives_its_handler_makes_no_steps(bench: Bench, ran: list[str]) -> None:
    left: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def late() -> None:
        await over.wait()
        with pytest.raises(LeaseLost):
            await current_job().step("late", says(ran, "late"))

    async def leaves() -> None:
        left.append(asyncio.create_task(late()))
        await current_job().step("own", says(ran, "own"))

    await bench.put(bench.task(leaves))
    await bench.drain()
    over.set()
    await left[0]
    assert ran == ["own"]


# -- sync tasks


async def test_a_sync_task_has_the_same_steps(bench: Bench, ran: list[str]) -> None:
    async def in_the_loop() -> str:
        ran.append("async")
        return current_job().step_key

    def in_a_thread() -> str:
        ran.append("plain")
        return current_job().step_key

    def pays() -> list[str]:
        job = current_job()
        keys = [job.run(job.step("plain", in_a_thread))]
        keys.append(job.run(job.step("async", in_the_loop)))
        if job.attempt == 1:
            raise ConnectionError
        return keys

    id = await bench.put(bench.task(pays, retry=FAILS_ONCE))
    await bench.drain()
    assert await ended(bench, id) == (State.succeeded, [f"{id_text(id)}:plain", f"{id_text(id)}:async"])
    assert ran == ["plain", "async"]


async def test_steps_of_a_sync_task_are_in_order_too(bench: Bench, ran: list[str]) -> None:
    def swaps() -> None:
        job = current_job()
        names = ["a", "b"] if job.attempt == 1 else ["b", "a"]
        for name in names:
            job.run(job.step(name, says(ran, name)))
        raise ConnectionError

    id = await bench.put(bench.task(swaps, retry=5))
    await bench.drain({"linger_ms": 5_000})
    assert (await bench.view(id)).error_type == "limpet.StepsChanged"
    assert ran == ["a", "b"]


async def test_threads_of_a_sync_task_make_steps_in_any_order(bench: Bench, ran: list[str]) -> None:
    def fans_out() -> None:
        job = current_job()
        names = [f"page-{n}" for n in range(6)]
        if job.attempt > 1:
            names.reverse()
        threads = [threading.Thread(target=lambda n=n: job.run(job.step(n, says(ran, n)))) for n in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if job.attempt == 1:
            raise ConnectionError
        job.run(job.step("end", says(ran, "end")))

    id = await bench.put(bench.task(fans_out, retry=FAILS_ONCE))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert max(Counter(ran).values()) == 1


async def test_a_sync_task_that_should_stop_hears_it_at_its_next_step(bench: Bench, ran: list[str]) -> None:
    asked = threading.Event()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def pays() -> None:
        job = current_job()
        job.run(job.step("one", says(ran, "one")))
        loop.call_soon_threadsafe(started.set)
        asked.wait(60)
        try:
            job.run(job.step("two", says(ran, "two")))
        except asyncio.CancelledError:
            job.run(job.step("refund", says(ran, "refund")))  # once told, it may clean up
            raise

    id = await bench.put(bench.task(pays))
    stop, beaten = asyncio.Event(), asyncio.Event()
    worker = bench.worker({"beat_ms": 10}, events=WorkerEvents(on_beat=beaten.set))
    work = asyncio.create_task(worker.run(stop))
    await started.wait()
    assert await bench.store.cancel([id], "not needed") == ["cancelling"]
    run = worker._run
    assert run is not None
    attempt = next(iter(run._executor.running.values()))
    while attempt.cause is None:
        await beaten.wait()
        beaten.clear()
    asked.set()
    stop.set()
    await work
    assert (await bench.view(id)).state is State.cancelled
    assert ran == ["one", "refund"]


# -- the lease


async def test_a_step_of_a_stale_attempt_is_not_recorded(bench: Bench) -> None:
    started, taken = asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    async def pays() -> None:
        started.set()
        await taken.wait()

    async def slow() -> None:
        try:
            await current_job().step("charge", pays)
        except LeaseLost as error:
            errors.append(error.message)
            raise

    id = await bench.put(bench.task(slow))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await started.wait()
    token = (await bench.view(id)).token
    assert token is not None
    await bench.store.settle("its supervisor", 1, [Drop(id, token, "taken for dead")])  # it is not told
    taken.set()
    stop.set()
    report = await work
    assert ["'charge' is not recorded" in text for text in errors] == [True]
    assert (report.run, report.stale) == (0, 0)
    assert [note for note in (await bench.view(id)).notes if note.kind == "step"] == []


async def test_an_attempt_that_lost_its_lease_begins_no_step(bench: Bench, ran: list[str]) -> None:
    async def goes_on() -> None:
        job = current_job()
        await job.step("one", says(ran, "one"))
        job._attempt.fence()
        with pytest.raises(LeaseLost):
            await job.step("two", says(ran, "two"))

    await bench.put(bench.task(goes_on))
    assert (await bench.drain()).run == 0
    assert ran == ["one"]


async def test_a_store_that_is_away_does_not_cost_the_record(
    bench: Bench, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [True, True]
    save = bench.store.save

    async def troubled(*args: Any, **options: Any) -> bool:
        if away:
            away.pop()
            raise StoreUnreachable("away", verb="save")
        return await save(*args, **options)

    monkeypatch.setattr(bench.store, "save", troubled)

    async def pays() -> None:
        await current_job().step("charge", says(ran, "charge"))

    id = await bench.put(bench.task(pays, retry=5))
    await bench.drain()
    assert ran == ["charge"]
    assert (await bench.view(id)).state is State.succeeded


async def test_what_a_cancelled_step_has_done_is_recorded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function has run, its record is on its way, and the attempt is cancelled."""
    saving, stopped = asyncio.Event(), asyncio.Event()
    save, stop_attempt = StoreChannel.save, Attempt.stop

    async def slowly(self: StoreChannel, job: Claimed, note: Note) -> bool:
        saving.set()
        await stopped.wait()
        for _ in range(10):
            await asyncio.sleep(0)  # the cancellation reaches the step
        return await save(self, job, note)

    def stops(self: Attempt, cause: Cause, reason: str = "") -> None:
        stop_attempt(self, cause, reason)
        stopped.set()

    monkeypatch.setattr(StoreChannel, "save", slowly)
    monkeypatch.setattr(Attempt, "stop", stops)

    async def pays() -> None:
        await current_job().step("charge", dict)

    id = await bench.put(bench.task(pays))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"grace_ms": 0}).run(stop))
    await saving.wait()
    stop.set()
    await work
    view = await bench.view(id)
    assert view.state is State.ready
    assert [note.name for note in view.notes] == ["charge"]


# -- code that changed


async def changed_code(bench: Bench, ran: list[str], before: list[str], after: list[str], **options: Any) -> bytes:
    """A job whose first attempt made the steps `before`, and whose later ones make the steps `after`."""

    async def deployed() -> list[str]:
        job = current_job()
        for name in before if job.attempt == 1 else after:
            await job.step(name, says(ran, name))
        if job.attempt == 1:
            raise ConnectionError
        return ran

    id = await bench.put(bench.task(deployed, retry=[0, 0], **options))
    await bench.drain()
    return id


async def test_code_that_changed_is_noticed_before_anything_runs(bench: Bench, ran: list[str]) -> None:
    id = await changed_code(bench, ran, ["plan", "pay", "mail"], ["plan", "review", "pay", "mail"])
    view = await bench.view(id)
    assert (view.state, view.error_type) == (State.dead, "limpet.StepsChanged")
    assert "it called step('pay') here before, and now step('review')" in view.reason
    assert f"limpet dead retry {id_text(id)} --forget pay --forget mail" in view.reason
    assert ran == ["plan", "pay", "mail"]
    assert [note.name for note in view.notes if note.kind == "step"] == ["mail", "pay", "plan"]


async def test_a_person_lets_the_new_code_go_on_by_forgetting_steps(bench: Bench, ran: list[str]) -> None:
    id = await changed_code(bench, ran, ["plan", "pay", "mail"], ["plan", "review", "pay", "mail"])
    ran.clear()
    await bench.store.retry(RetryRequest((id,), forget=("pay", "mail")))

    async def deployed() -> None:
        for name in ["plan", "review", "pay", "mail"]:
            await current_job().step(name, says(ran, name))

    bench.task(deployed)
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert ran == ["review", "pay", "mail"]


async def test_a_task_may_tell_its_steps_by_name_alone(bench: Bench, ran: list[str]) -> None:
    id = await changed_code(bench, ran, ["plan", "pay"], ["review", "pay", "plan"], steps="by-name")
    assert await ended(bench, id) == (State.succeeded, ["plan", "pay", "review"])


async def test_a_step_that_vanished_from_parallel_tasks_is_noticed_before_a_new_one_runs(
    bench: Bench, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Steps, "patience_s", 0.01)

    async def deployed() -> None:
        job = current_job()
        names = ["a", "b"] if job.attempt == 1 else ["renamed", "b"]
        await asyncio.gather(*(job.step(name, says(ran, name)) for name in names))
        raise ConnectionError

    id = await bench.put(bench.task(deployed, retry=[0, 0]))
    await bench.drain()
    view = await bench.view(id)
    assert view.error_type == "limpet.StepsChanged"
    assert "it called step('a') here before, and now step('renamed') without it" in view.reason
    assert sorted(ran) == ["a", "b"]


async def test_a_step_that_is_no_longer_reached_is_logged(
    bench: Bench, ran: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    id = await changed_code(bench, ran, ["plan", "pay"], ["plan"])
    assert (await bench.view(id)).state is State.succeeded
    assert any("without all of its recorded steps" in r.message and "pay" in r.message for r in caplog.records)


async def test_steps_show_their_place_and_value_in_the_notes(bench: Bench) -> None:
    async def pays() -> None:
        await current_job().step("charge", lambda: {"id": 1})

    id = await bench.put(bench.task(pays))
    await bench.drain()
    (note,) = (await bench.view(id)).notes
    assert (note.kind, note.name) == ("step", "charge")
    assert msgspec.json.decode(note.body) == {"kind": "step", "place": 1, "value": {"id": 1}}
    assert History([note]).call("step", "charge").record is not None
