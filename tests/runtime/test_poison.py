"""One job never ends the worker, whatever it raises, says or asks for; the others go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.endings.signals import Cancel, Dead, RateLimited, RetryLater, Snooze
from limpet.core.jobs.state import State
from tests.runtime.running import Bench

BAD = "caf\udce9\0"


class NoResponse(Exception):
    """As a client's error is before there was an answer."""

    @property
    def response(self) -> Any:
        raise RuntimeError("no response yet")


class Empty(Exception):
    def __init__(self) -> None:
        self.response = {"ResponseMetadata": None}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Hollow(Snooze):
    """A signal that was never told for how long."""

    def __init__(self) -> None: ...


class Reckless(Cancel):
    """A signal that fails when it is asked why."""

    def __init__(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def is_raised(error: BaseException) -> Callable[[], Any]:
    async def poison() -> None:
        raise error

    return poison


def is_raised_later(error: BaseException) -> Callable[[], Any]:
    async def poison() -> None:
        await asyncio.sleep(0)
        raise error

    return poison


def is_raised_in_a_thread(error: BaseException) -> Callable[[], Any]:
    def poison() -> None:
        raise error

    return poison


WHERE = [is_raised, is_raised_later, is_raised_in_a_thread]


async def run(bench: Bench, poison: Callable[[], Any], **options: Any) -> Any:
    """The job's view after a worker has met it, and five others after it, which must all have run once."""
    runs: list[int] = []

    async def good(n: int) -> None:
        runs.append(n)

    spec = bench.task(good)
    bad = await bench.put(bench.task(poison, **options))
    for n in range(5):
        await bench.put(spec, {"n": n})
    report = await bench.drain()
    assert sorted(runs) == [0, 1, 2, 3, 4]
    assert report.succeeded == 5
    return await bench.view(bad)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda: Snooze(60, BAD), State.scheduled),
        (lambda: Cancel(BAD), State.cancelled),
        (lambda: Dead(BAD), State.dead),
        (lambda: RetryLater(60, BAD), State.scheduled),
        (lambda: ValueError(BAD), State.scheduled),
        (NoResponse, State.scheduled),
        (Empty, State.scheduled),
        (Mute, State.scheduled),
        (lambda: SystemExit(3), State.scheduled),
        (GeneratorExit, State.scheduled),
    ],
)
async def test_what_a_handler_raises_decides_about_its_own_job_only(
    bench: Bench, where: Callable[[BaseException], Callable[[], Any]], make: Callable[[], BaseException], state: State
) -> None:
    assert (await run(bench, where(make()), retry=[60])).state is state


@pytest.mark.parametrize("key", [BAD, "elsewhere"])
async def test_a_limit_that_cannot_exist_holds_only_its_own_job(bench: Bench, key: str) -> None:
    view = await run(bench, is_raised(RateLimited(3600, key=key)))
    assert view.attempt == 0
    assert view.state in (State.ready, State.scheduled)


@pytest.mark.parametrize("seconds", [1e300, 10**40, float("inf"), float("nan")])
async def test_a_retry_function_may_answer_any_number(bench: Bench, seconds: float) -> None:
    view = await run(bench, is_raised(ValueError()), retry=lambda attempt, error: seconds)
    assert view.state is State.scheduled


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("kind", [Hollow, Reckless])
async def test_what_cannot_be_judged_is_buried(
    bench: Bench, where: Callable[[BaseException], Callable[[], Any]], kind: type[Hollow | Reckless]
) -> None:
    view = await run(bench, where(kind()), retry=[60])
    assert (view.state, view.error_type) == (State.dead, "limpet.Unjudgeable")


async def test_a_retry_function_that_exits_is_the_end_of_its_job_only(bench: Bench) -> None:
    def leaves(attempt: int, error: BaseException) -> float:
        raise SystemExit(3)

    view = await run(bench, is_raised(ValueError()), retry=leaves)
    assert (view.state, view.error_type) == (State.dead, "limpet.Unjudgeable")


async def test_a_keyboard_interrupt_that_no_signal_raised_fails_its_job(bench: Bench) -> None:
    assert (await run(bench, is_raised_in_a_thread(KeyboardInterrupt()))).state is State.dead
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the processes that `limpet worker` starts
    try:
        assert (await run(bench, is_raised(KeyboardInterrupt()))).state is State.dead
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_cancels_its_own_task_costs_no_other_job(bench: Bench, waits: bool) -> None:
    runs: list[int] = []

    async def cancels_itself() -> None:
        if waits:
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def good(n: int) -> None:
        await asyncio.sleep(0)
        runs.append(n)

    poison, spec = bench.task(cancels_itself), bench.task(good)
    for n in range(5):
        await bench.put(poison)
        await bench.put(spec, {"n": n})
    report = await bench.drain({"concurrency": 1})
    assert sorted(runs) == [0, 1, 2, 3, 4]
    assert report.dead == 0
