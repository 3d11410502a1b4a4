"""Runs one attempt as a pipe of small steps: decode, middleware, invoke, judge, decide.

Timers and cancellation are set up only if the handler does not finish at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context, copy_context
from functools import partial
from os import getpid
from typing import Any, Protocol

from limpet.core.endings.outcome import Completed, HandedBack, TimedOut
from limpet.core.endings.transition import Succeed, Transition
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import SuspensionCaught, UsageError
from limpet.core.flows.refs import Given
from limpet.core.tasks.declare import is_async
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.attempt import Attempt, Cause, Escaped, end_of_copy
from limpet.runtime.current import current
from limpet.runtime.interruption import Interruption, Run
from limpet.runtime.judging import (
    TROUBLE,
    Abandoned,
    Unreadable,
    decided,
    given_up,
    is_exhausted,
    judge,
    without_secrets,
)
from limpet.runtime.log import job_log
from limpet.runtime.resources import Resources
from limpet.runtime.settings import Parts
from limpet.runtime.step import Calls
from limpet.runtime.steps import Steps


class SyncCalls(Calls, Protocol):
    """Where sync handlers run: a pool of threads, or the main thread of an isolated process."""

    def soft_timeout(self) -> None:
        """Raise TimeoutError inside the running call, where that is possible."""


class PreparedTask:
    """What a task needs to run, worked out once."""

    __slots__ = ("classifiers", "decode", "encode_result", "fn", "in_loop", "injected", "plain")

    def __init__(self, spec: TaskSpec, injected: dict[str, object], classifiers: Sequence[Classifier]) -> None:
        self.fn = spec.fn
        # An async function runs in a loop wherever its job runs: in the worker, or in an isolated process.
        self.in_loop = is_async(spec.fn)
        self.injected = injected
        self.classifiers = (*spec.classifiers, *classifiers)
        self.decode = spec.signature.decode
        self.encode_result = spec.signature.encode_result
        self.plain = self.in_loop and not injected and not spec.signature.parameters


class Pipe:
    """Turns claimed jobs into transitions, in this process."""

    def __init__(
        self,
        parts: Parts,
        resources: Resources,
        sync_calls: SyncCalls,
        rng: random.Random,
        step_calls: Calls | None = None,
    ) -> None:
        self._prepared = {
            name: PreparedTask(spec, resources.for_task(spec), parts.classifiers) for name, spec in parts.tasks.items()
        }
        self._middleware = tuple(parts.middleware)
        self._step_middleware = tuple(parts.step_middleware)
        self._sync_calls = sync_calls
        self._step_calls = step_calls or sync_calls
        self._rng = rng

    async def run(self, attempt: Attempt) -> Transition | None:
        """The transition for this attempt; None when its outcome cannot matter any more."""
        job = attempt.job
        prepared = self._prepared[job.lane.task]
        attempt.calls, attempt.classifiers = self._step_calls, prepared.classifiers
        attempt.step_middleware = self._step_middleware
        current.set(attempt)
        context = copy_context()
        try:
            body = self._body(attempt, prepared, context)
            value = await drive(body, attempt, context)
            if attempt.steps is not None:
                _refuse_unfinished(attempt, attempt.steps)
            plain = value is not None and not attempt.completed
            result = prepared.encode_result(value, job.policy.max_result_bytes) if plain else None
        except (KeyboardInterrupt, GeneratorExit):
            raise  # these are the loop's: a handler's own come as Escaped
        except Escaped as error:
            return self._failed(attempt, prepared, error.__cause__ or error)
        except BaseException as error:
            return self._failed(attempt, prepared, error)
        if attempt.over or attempt.cause == "lost":
            return None
        return self._completed(attempt, prepared, value) if attempt.completed else Succeed(job.id, job.token, result)

    def hard_timeout(self, attempt: Attempt) -> Transition:
        """The transition for an attempt that did not end when it was told to."""
        if attempt.cause == "lease":
            return decided(attempt, HandedBack(started=True), self._rng)
        outcome = TimedOut(hard=True, after_ms=attempt.elapsed_ms())
        try:
            return decided(attempt, outcome, self._rng, TimeoutError("hard timeout"))
        except TROUBLE as trouble:
            return given_up(attempt, trouble)

    # -- decode, middleware, invoke

    def _body(self, attempt: Attempt, prepared: PreparedTask, context: Context) -> Coroutine[Any, Any, Any]:
        if prepared.plain and attempt.job.args == b"{}" and not self._middleware:
            return prepared.fn()  # type: ignore[no-any-return]  # a coroutine function, checked by `in_loop`
        args, kwargs = self._decode(attempt, prepared)
        if prepared.injected:
            kwargs.update(prepared.injected)
        if self._middleware:
            return self._wrapped(attempt, prepared, partial(prepared.fn, *args, **kwargs), context)
        if prepared.in_loop:
            return prepared.fn(*args, **kwargs)  # type: ignore[no-any-return]  # as above
        return self._in_thread(attempt, partial(prepared.fn, *args, **kwargs), context)

    def _decode(self, attempt: Attempt, prepared: PreparedTask) -> tuple[list[Any], dict[str, Any]]:
        job = attempt.job
        try:
            return prepared.decode(job.args, Given.to(job) if job.after or job.inputs else None)
        except UsageError as error:
            raise Unreadable from error

    def _wrapped(
        self, attempt: Attempt, prepared: PreparedTask, call: Callable[[], Any], context: Context
    ) -> Coroutine[Any, Any, Any]:
        async def innermost() -> object:
            if prepared.in_loop:
                return await call()
            return await self._in_thread(attempt, call, copy_context())

        layers: Callable[[], Awaitable[object]] = innermost
        for middleware in reversed(self._middleware):
            layers = partial(middleware, attempt.context, layers)
        return _awaited(layers)

    async def _in_thread(self, attempt: Attempt, call: Callable[[], Any], context: Context) -> Any:
        # The handler runs in a copy, since one context cannot be entered by two threads at once.
        def known() -> Any:
            attempt.thread = threading.get_ident()
            try:
                return call()
            finally:
                attempt.returned = True  # first: who gives it up meanwhile looks after having said so
                if attempt.left and attempt.host is not None:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: its worker has ended
                        attempt.loop.call_soon_threadsafe(attempt.host.came_back, attempt)

        future = self._sync_calls.submit(known, context.copy())

        def stop(cause: Cause) -> None:
            if cause == "timeout":
                self._sync_calls.soft_timeout()
            elif cause in ("hard", "lost") and not future.done():
                future.set_exception(Abandoned())

        attempt.stopper = stop
        try:
            return await future
        finally:
            attempt.stopper = None

    # -- judge, decide

    def _completed(self, attempt: Attempt, prepared: PreparedTask, value: object) -> Transition:
        """The handler has said its result where it counts: what it returns besides is dropped, not in silence."""
        if value is not None and not _is_noted(attempt, prepared, value):
            job_log(logging.WARNING, "the job keeps the result given to complete()", attempt.job)
        return decided(attempt, Completed(), self._rng)

    def _failed(self, attempt: Attempt, prepared: PreparedTask, error: BaseException) -> Transition | None:
        if attempt.over or attempt.cause == "lost":
            return None
        attempt.exhausted = is_exhausted(error)
        if attempt.cause == "lease":
            return decided(attempt, HandedBack(started=True), self._rng)  # whatever it makes of being stopped
        try:
            outcome = without_secrets(attempt, judge(attempt, error, prepared.classifiers), error)
            return decided(attempt, outcome, self._rng, error)
        except TROUBLE as trouble:
            return given_up(attempt, trouble)


@types.coroutine
def drive(body: Coroutine[Any, Any, Any], attempt: Attempt, context: Context) -> Generator[Any, Any, Any]:
    """Run `body` inside the calling task, in a context of its own.

    Stepping it by hand makes the common short job cheap: no task, no timer, until it first waits. Later
    steps stay in the same task, so what the handler builds on the current task (timeouts, groups) holds.
    """
    run: Run = context.run
    task = asyncio.current_task()
    assert task is not None
    closed = False
    pid = getpid()
    try:
        waits_for = run(body.send, None)
        attempt.yields(task)
        while True:
            if getpid() != pid:
                end_of_copy()
            try:
                value = yield waits_for
            except BaseException as error:
                closed = isinstance(error, GeneratorExit)  # the loop has let go of us, not the handler
                if attempt.times_out(error):
                    run = Interruption(attempt, body, task, run)
                waits_for = run(body.throw, error)
            else:
                waits_for = run(body.send, value)
    except StopIteration as done:
        return done.value
    except (GeneratorExit, KeyboardInterrupt) as error:
        if closed:
            raise
        raise _escaped(error) from error
    finally:
        if getpid() != pid:
            end_of_copy()
        if attempt.steps is not None and not closed:
            yield from attempt.steps.finish().__await__()
        if task.cancelling() and not closed:
            with contextlib.suppress(asyncio.CancelledError):
                yield  # a cancellation that the handler's last step asked for must not hit the task's next job
        attempt.end()
        while task.cancelling():
            task.uncancel()  # the task will run other jobs


def _escaped(error: BaseException) -> BaseException:
    """What to raise for a handler's own GeneratorExit or KeyboardInterrupt.

    A Ctrl-C is raised inside whatever runs, so one that may come from a signal ends the worker, as it should.
    """
    if isinstance(error, KeyboardInterrupt) and interruptible():
        return error
    return Escaped()


def interruptible() -> bool:
    """True when a signal can raise KeyboardInterrupt here: in the main thread, unless SIGINT is ignored."""
    return threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT))


def _is_noted(attempt: Attempt, prepared: PreparedTask, value: object) -> bool:
    try:
        return prepared.encode_result(value, attempt.job.policy.max_result_bytes) == attempt.noted
    except UsageError:
        return False


def _refuse_unfinished(attempt: Attempt, steps: Steps) -> None:
    """A handler that returns has made its durable calls; if it caught what suspended it, it has not."""
    if steps.suspension is not None:
        raise SuspensionCaught(
            f"the handler returned although it was suspended ({steps.suspension})",
            fix="do not catch BaseException around sleep, wait_for or approval, or raise it again; the same is true of "
            "gather(return_exceptions=True)",
        )
    if left := steps.left_out():
        job_log(logging.WARNING, "the job ended without all of its recorded steps", attempt.job, left_out=left)


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()
