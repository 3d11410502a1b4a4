"""Runs one attempt as a pipe of small steps: decode, middleware, invoke, judge, decide."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Protocol

from msgspec.structs import replace

from limpet.core.endings.classify import outcome_of
from limpet.core.endings.decide import decide, unjudgeable
from limpet.core.endings.failure import failure_of
from limpet.core.endings.outcome import (
    CancelledByRequest,
    Completed,
    Crashed,
    HandedBack,
    Limited,
    Outcome,
    Raised,
    Suspended,
    TimedOut,
)
from limpet.core.endings.transition import Succeed, Transition
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import NotSerialisable, PayloadTooLarge, SuspensionCaught, UsageError
from limpet.core.flows.refs import Given
from limpet.core.tasks.declare import is_async
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.attempt import Attempt, Cause, Escaped, drive
from limpet.runtime.context import current
from limpet.runtime.log import job_log
from limpet.runtime.resources import Resources
from limpet.runtime.settings import Parts
from limpet.runtime.step import Calls
from limpet.runtime.steps import Steps
from limpet.runtime.suspension import Suspension
from limpet.runtime.threads import NoThread

LONGEST_CHAIN: Final = 16  # of causes that are looked through


class SyncCalls(Calls, Protocol):
    """Where sync handlers run: a pool of threads, or the main thread of an isolated process."""

    def soft_timeout(self) -> None:
        """Raise TimeoutError inside the running call, where that is possible."""


class Abandoned(BaseException):
    """A sync call was given up at its hard timeout or at shutdown; its thread may still run, and is fenced."""


class Recipe:
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
        self._recipes = {
            name: Recipe(spec, resources.for_task(spec), parts.classifiers) for name, spec in parts.tasks.items()
        }
        self._middleware = tuple(parts.middleware)
        self._sync_calls = sync_calls
        self._step_calls = step_calls or sync_calls
        self._rng = rng

    async def run(self, attempt: Attempt) -> Transition | None:
        """The transition for this attempt; None when its outcome cannot matter any more."""
        job = attempt.job
        recipe = self._recipes[job.lane.task]
        attempt.calls, attempt.classifiers = self._step_calls, recipe.classifiers
        current.set(attempt)
        context = copy_context()
        try:
            body = self._body(attempt, recipe, context)
            value = await drive(body, attempt, context)
            if attempt.steps is not None:
                _refuse_unfinished(attempt, attempt.steps)
            plain = value is not None and not attempt.completed
            result = recipe.encode_result(value, job.policy.max_result_bytes) if plain else None
        except (KeyboardInterrupt, GeneratorExit):
            raise  # these are the loop's: a handler's own come as Escaped
        except Escaped as error:
            return self._failed(attempt, recipe, error.__cause__ or error)
        except BaseException as error:
            return self._failed(attempt, recipe, error)
        if attempt.over or attempt.cause == "lost":
            return None
        return self._completed(attempt, recipe, value) if attempt.completed else Succeed(job.id, job.token, result)

    def hard_timeout(self, attempt: Attempt) -> Transition:
        """The transition for an attempt that did not end when it was told to."""
        if attempt.cause == "lease":
            return decided(attempt, HandedBack(started=True), self._rng)
        outcome = TimedOut(hard=True, after_ms=attempt.elapsed_ms())
        try:
            return decided(attempt, outcome, self._rng, TimeoutError("hard timeout"))
        except _TROUBLE as trouble:
            return _given_up(attempt, trouble)

    # -- decode, middleware, invoke

    def _body(self, attempt: Attempt, recipe: Recipe, context: Context) -> Coroutine[Any, Any, Any]:
        if recipe.plain and attempt.job.args == b"{}" and not self._middleware:
            return recipe.fn()  # type: ignore[no-any-return]  # a coroutine function, checked by `in_loop`
        args, kwargs = self._decode(attempt, recipe)
        if recipe.injected:
            kwargs.update(recipe.injected)
        if self._middleware:
            return self._wrapped(attempt, recipe, partial(recipe.fn, *args, **kwargs), context)
        if recipe.in_loop:
            return recipe.fn(*args, **kwargs)  # type: ignore[no-any-return]  # as above
        return self._in_thread(attempt, partial(recipe.fn, *args, **kwargs), context)

    def _decode(self, attempt: Attempt, recipe: Recipe) -> tuple[list[Any], dict[str, Any]]:
        try:
            return recipe.decode(attempt.job.args, Given.to(attempt.job))
        except UsageError as error:
            raise Unreadable from error

    def _wrapped(
        self, attempt: Attempt, recipe: Recipe, call: Callable[[], Any], context: Context
    ) -> Coroutine[Any, Any, Any]:
        async def innermost() -> object:
            if recipe.in_loop:
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

    def _completed(self, attempt: Attempt, recipe: Recipe, value: object) -> Transition:
        """The handler has said its result where it counts: what it returns besides is dropped, not in silence."""
        if value is not None and not _is_noted(attempt, recipe, value):
            job_log(logging.WARNING, "the job keeps the result given to complete()", attempt.job)
        return decided(attempt, Completed(), self._rng)

    def _failed(self, attempt: Attempt, recipe: Recipe, error: BaseException) -> Transition | None:
        if attempt.over or attempt.cause == "lost":
            return None
        attempt.exhausted = _is_exhausted(error)
        if attempt.cause == "lease":
            return decided(attempt, HandedBack(started=True), self._rng)  # whatever it makes of being stopped
        try:
            return decided(attempt, judge(attempt, error, recipe.classifiers), self._rng, error)
        except _TROUBLE as trouble:
            return _given_up(attempt, trouble)


def _is_exhausted(error: BaseException) -> bool:
    """True when the process had no memory, no file or no thread left for the handler."""
    link: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if link is None:
            return False
        if isinstance(link, MemoryError | NoThread) or (isinstance(link, OSError) and link.errno == errno.EMFILE):
            return True
        link = link.__cause__ or link.__context__
    return False


def _is_noted(attempt: Attempt, recipe: Recipe, value: object) -> bool:
    try:
        return recipe.encode_result(value, attempt.job.policy.max_result_bytes) == attempt.noted
    except UsageError:
        return False


# What other people's code may raise while it is asked about an error: a property, a __str__, a function of the task.
_TROUBLE: Final = (Exception, SystemExit, GeneratorExit)


def _given_up(attempt: Attempt, trouble: BaseException) -> Transition:
    """The last net: one attempt that cannot be judged ends its own job, never the worker."""
    job_log(logging.ERROR, "the end of a job cannot be judged", attempt.job, trouble=type(trouble).__name__)
    return unjudgeable(attempt.job, trouble)


def decided(attempt: Attempt, outcome: Outcome, rng: random.Random, error: BaseException | None = None) -> Transition:
    """Core's decision, with what the task says about its own retries and limits."""
    job, spec = attempt.job, attempt.spec
    if isinstance(outcome, Limited) and outcome.key is not None:
        outcome = replace(outcome, key=spec.filled(job.lane, outcome.key))
    return decide(job, outcome, rng=rng, retry_function=spec.retry.function, error=error, learns=spec.learns(job.lane))


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


class Unreadable(Exception):
    """The stored arguments cannot become a call; why is the cause."""


def judge(attempt: Attempt, error: BaseException, classifiers: Sequence[Classifier]) -> Outcome:
    """What an attempt that ended with `error` came to."""
    match error:
        case Unreadable(__cause__=why) if why is not None:
            return Raised(failure_of(why, "permanent"), fatal=True)
        case NotSerialisable() | PayloadTooLarge():
            return Raised(failure_of(error, "permanent"), fatal=True)
        case Suspension():
            return Suspended(error.delay_ms, error.events)
        case BaseExceptionGroup() if (found := _suspension(error)) is not None:
            return Suspended(found.delay_ms, found.events)
        case asyncio.CancelledError() | Abandoned():
            return _stopped(attempt, error)
        case NoThread():
            return Crashed(False, str(error))  # some other job has used them all up
        case TimeoutError() | BaseExceptionGroup() if (
            attempt.cause == "timeout" and (late := _timeout(error)) is not None
        ):
            return TimedOut(hard=False, after_ms=attempt.elapsed_ms(), failure=failure_of(late, "timeout"))
    return outcome_of(error, classifiers, now_ms=time.time_ns() // 1_000_000)


def _suspension(group: BaseExceptionGroup[BaseException]) -> Suspension | None:
    """What a task group raises when a task of it was suspended; None when one of them has failed, too."""
    suspended, others = group.split(Suspension)
    if suspended is None or others is not None:
        return None
    found = _first(suspended)
    return found if isinstance(found, Suspension) else None


def _timeout(error: BaseException) -> BaseException | None:
    """The timeout itself, also out of a task group; None when something else has failed, too."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    timeouts, others = error.split(TimeoutError)
    return None if timeouts is None or others is not None else _first(timeouts)


def _first(found: BaseException) -> BaseException:
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _stopped(attempt: Attempt, error: BaseException) -> Outcome:
    match attempt.cause:
        case "timeout":
            return TimedOut(hard=False, after_ms=attempt.elapsed_ms())
        case "hard":
            return TimedOut(hard=True, after_ms=attempt.elapsed_ms())
        case "cancel":
            return CancelledByRequest(attempt.reason)
        case "shutdown":
            return HandedBack(started=True)
        case "fall":
            return Crashed(False, attempt.reason)
    # Nobody asked: something inside the handler was cancelled, which is a failure like any other.
    return Raised(failure_of(error, "transient"))


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()
