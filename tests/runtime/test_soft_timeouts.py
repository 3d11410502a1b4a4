"""A soft timeout of an async task: what its handler sees, and what becomes of what it waited for."""

from __future__ import annotations

import asyncio
import functools
import itertools
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, JobView
from limpet.runtime import current_job
from limpet.stores.asking import attempts_of
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench

TIMEOUT_S = 0.02


class Library:
    """Code that knows cancellation and uses timeouts of its own, as drivers do."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def ask(self) -> str:
        try:
            return await self._polled()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it tells the other side, which takes a few turns of the loop
            await asyncio.sleep(0)
            self.heard.append("cancelled")
            raise

    async def _polled(self) -> str:
        while True:
            try:
                await asyncio.Event().wait()
            except TimeoutError:
                self.heard.append("timeout")  # it would take it for its own, and go on
            except OSError:
                self.heard.append("closed")


async def timed_out(
    handler: Callable[..., Any], *, timeout: float = TIMEOUT_S, **options: Any
) -> tuple[JobView, AttemptView | None]:
    """Run a handler that waits for too long; its job, and the attempt if it failed."""
    store = SqliteStore(None)
    bench = Bench(store)
    try:
        id = await bench.put(bench.task(handler, timeout=timeout, hard_timeout=60))
        await bench.drain(**options)
        attempts = await attempts_of(store, id)
        return await bench.view(id), attempts[0] if attempts else None
    finally:
        await store.close()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_handler_gets_a_timeout_error_at_its_await_and_may_go_on(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    library, seen = Library(), list[BaseException]()

    async def slow() -> str:
        try:
            return await library.ask()
        except TimeoutError as error:
            seen.append(error)
            await asyncio.sleep(0.001)  # nothing of it is left: it can wait, and set timeouts of its own
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
            task = asyncio.current_task()
            return f"cleaned up, {task.cancelling() if task else '?'} cancellations"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        view, _ = runner.run(timed_out(slow))
    assert library.heard == ["cancelled"]
    assert [type(error) for error in seen] == [TimeoutError]
    assert str(seen[0]).startswith("timed out after")
    assert (view.state, view.result) == (State.succeeded, b'"cleaned up, 0 cancellations"')


async def test_a_future_that_is_awaited_is_cancelled() -> None:
    seen: list[str] = []
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow() -> None:
        try:
            await future
        except TimeoutError:
            seen.append("TimeoutError")
            raise
        finally:
            seen.append("finally")

    _, attempt = await timed_out(slow)
    assert future.cancelled()
    assert seen == ["TimeoutError", "finally"]
    assert attempt is not None
    assert (attempt.kind, attempt.type) == ("timeout", "TimeoutError")
    assert attempt.message.startswith("timed out after")
    assert "await future" in attempt.traceback


async def test_a_task_that_is_awaited_is_cancelled_and_has_ended() -> None:
    ended: list[str] = []

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("child")

    async def slow() -> None:
        try:
            await asyncio.gather(asyncio.create_task(child()), child())
        except TimeoutError:
            ended.append("handler")
            raise

    _, attempt = await timed_out(slow)
    assert ended == ["child", "child", "handler"]
    assert attempt is not None
    assert attempt.kind == "timeout"


async def test_it_passes_through_a_timeout_of_the_handlers_own_that_is_not_over() -> None:
    async def slow() -> None:
        async with asyncio.timeout(60) as own:
            try:
                await asyncio.sleep(60)
            finally:
                assert not own.expired()

    _, attempt = await timed_out(slow)
    assert attempt is not None
    assert (attempt.kind, attempt.type) == ("timeout", "TimeoutError")


async def test_a_timeout_of_the_handlers_own_is_its_own_and_no_soft_timeout() -> None:
    async def slow() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return str(current_job().cancelled)
        return "no timeout"

    view, _ = await timed_out(slow, timeout=60)
    assert view.result == b'"False"'


@pytest.mark.parametrize("at_its_end", [False, True], ids=["in the block", "at its end"])
async def test_a_task_group_of_the_handler_passes_it_on_as_an_exception_group(at_its_end: bool) -> None:
    library, seen = Library(), list[BaseException]()

    async def slow() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(library.ask())
                if not at_its_end:
                    await library.ask()
        except ExceptionGroup as errors:
            seen.extend(errors.exceptions)
            raise

    _, attempt = await timed_out(slow)
    assert set(library.heard) == {"cancelled"}
    assert [type(error) for error in seen] == [TimeoutError]
    assert attempt is not None
    assert (attempt.kind, attempt.type) == ("timeout", "TimeoutError")


async def test_the_function_beneath_decorators_and_middleware_gets_it() -> None:
    seen: list[str] = []

    def decorated(fn: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        @functools.wraps(fn)
        async def outer() -> None:
            try:
                await fn()
            except BaseException as error:
                seen.append(f"decorator {type(error).__name__}")
                raise

        return outer

    @decorated
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            seen.append(f"handler {type(error).__name__}")
            raise

    async def middleware(job: object, call: Callable[[], Awaitable[object]]) -> object:
        try:
            return await call()
        except BaseException as error:
            seen.append(f"middleware {type(error).__name__}")
            raise

    await timed_out(slow, middleware=[middleware])
    assert seen == ["handler TimeoutError", "decorator TimeoutError", "middleware TimeoutError"]


async def test_what_the_handler_awaits_may_keep_the_cancellation_to_itself() -> None:
    async def shielded() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all the same"
        return ""

    async def slow() -> str:
        answer = await shielded()
        await asyncio.sleep(0)
        return answer

    view, _ = await timed_out(slow)
    assert view.result == b'"all the same"'


async def test_a_handler_that_only_lets_others_run_gets_it_too() -> None:
    async def slow() -> str:
        try:
            for _ in itertools.count():
                await asyncio.sleep(0)
        except TimeoutError:
            return "told"
        return ""

    view, _ = await timed_out(slow)
    assert view.result == b'"told"'


async def test_a_plain_function_hears_it_at_its_next_step() -> None:
    def slow() -> str:
        job = current_job()
        while job._attempt.cause is None:  # asking `.cancelled` would be hearing it
            threading.Event().wait(0.001)
        try:
            job.run(job.step("one", str, 1))
        except TimeoutError:
            return "told"
        return "not told"

    view, _ = await timed_out(slow)
    assert view.result == b'"told"'


async def test_the_trace_function_of_a_debugger_is_left_as_it_was() -> None:
    def tracer(frame: object, event: str, arg: object) -> None: ...

    async def slow() -> bool:
        try:
            await asyncio.Event().wait()
        except TimeoutError:
            await asyncio.sleep(0)
        return sys.gettrace() is tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        view, _ = await timed_out(slow)
    finally:
        sys.settrace(before)
    assert view.result == b"true"
