"""Runs the function of one durable step: in the loop or in a thread, under its key, as often as its options say."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, get_args, overload

import msgspec
from msgspec import UNSET, Struct

from limpet.core.endings.classify import outcome_of
from limpet.core.endings.failure import message_of, type_name
from limpet.core.endings.outcome import Outcome, Raised
from limpet.core.endings.retry import Retry, RetryFunction, delay_ms
from limpet.core.endings.signals import JobSignal
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import (
    InvalidOption,
    InvalidStep,
    LeaseLost,
    NotSerialisable,
    PayloadTooLarge,
    StepFailed,
    StoreError,
    UsageError,
    WrongContext,
)
from limpet.core.flows.steps import MAX_STEP_BYTES, KeptError, Record, forgetting
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Policy
from limpet.core.tasks.declare import is_async, plain_function
from limpet.core.tasks.naming import did_you_mean
from limpet.core.tasks.payload import Signature
from limpet.core.text.duration import Duration

if TYPE_CHECKING:
    from limpet.runtime.context import JobContext

P = ParamSpec("P")
R = TypeVar("R")

OnError = Literal["raise", "keep"]

# The step whose function runs here.
inside: Final[ContextVar[str | None]] = ContextVar("limpet_step", default=None)

# What says more than that the function has failed: it is never kept, and trying again here cannot help.
_PASSES: Final = (JobSignal, UsageError, LeaseLost, StoreError)


# What trying again within the attempt may cure.
_MAY_PASS: Final = ("transient", "timeout")
_PATIENCE_S: Final = 60  # for a longer delay the job itself waits, which takes no slot meanwhile


class Calls(Protocol):
    """Where plain functions run."""

    def submit(self, call: Callable[[], Any], context: Context) -> asyncio.Future[Any]: ...


class RunningStep(Struct, frozen=True):
    """One try of a durable step whose function is about to run, as `@app.step_middleware` gets it."""

    job: JobContext
    name: str
    tries: int  # counted from 1 in this attempt; more than 1 only where the step's own options retry


StepMiddleware = Callable[[RunningStep, Callable[[], Awaitable[object]]], Awaitable[object]]


class StepRun(Struct, frozen=True):
    """Where and how the functions of an attempt's steps run."""

    job: JobContext
    calls: Calls
    classifiers: Sequence[Classifier]
    middleware: Sequence[StepMiddleware]  # outermost first
    stopping: Callable[[], bool]


class StepOptions(Struct, frozen=True):
    """How a step deals with errors: what becomes of them, and how often it is tried again within the attempt."""

    on_error: OnError = "raise"
    retry: Retry | None = None


PLAIN: Final = StepOptions()


class Step:
    """One step as it is asked for: its name, its function, and how that may fail."""

    def __init__(
        self, name: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: StepOptions
    ) -> None:
        if not callable(fn):
            raise InvalidStep(
                f"step {name!r} is given {fn!r:.60}, which cannot be called",
                fix="pass the function and its arguments apart: step('charge', charge, 90)",
            )
        self.name = name
        self._call = partial(fn, *args, **kwargs)
        self._in_loop = is_async(fn)
        self._options = options
        self._returns = Signature(f"step {name!r}", (), plain_function(fn))

    async def run(self, where: StepRun) -> msgspec.Raw | KeptError:
        """What is to be remembered: a result, or the error that is kept instead. Any other error is raised."""
        token = inside.set(self.name)
        try:
            value = await self._tried(where)
        except _PASSES:
            raise
        except Exception as error:
            if self._options.on_error == "raise" or not isinstance(_outcome(error, where.classifiers), Raised):
                raise
            return KeptError(type_name(error), message_of(error))
        finally:
            inside.reset(token)
        return msgspec.Raw(self._encoded(value))

    def answer(self, record: Record, job: str) -> Any:
        """What a remembered step answers, on its first run as on every later one."""
        kept = record.error
        if kept is not None:
            error = f"{kept.type}: {kept.message}"
            raise StepFailed(
                f"step {self.name!r} failed: {error}",
                step=self.name,
                error=error,
                fix=f"its error is kept; {forgetting(job, self.name)} runs it again",
            )
        return self._returns.decode_result(b"null" if record.value is UNSET else bytes(record.value))

    async def _tried(self, where: StepRun) -> Any:
        """What the function answers; errors that may pass are waited out here, if the options say so."""
        tries = 0
        while True:
            tries += 1
            try:
                return await (self._wrapped(where, tries) if where.middleware else self._called(where.calls))
            except _PASSES:
                raise
            except Exception as error:
                wait_s = _pause_s(self._options.retry, tries, error, where.classifiers)
                if wait_s is None or where.stopping():
                    raise
            await asyncio.sleep(wait_s)

    def _wrapped(self, where: StepRun, tries: int) -> Awaitable[Any]:
        layers: Callable[[], Awaitable[object]] = partial(self._called, where.calls)
        running = RunningStep(where.job, self.name, tries)
        for middleware in reversed(where.middleware):
            layers = partial(middleware, running, layers)
        return layers()

    async def _called(self, calls: Calls) -> Any:
        if self._in_loop:
            return await self._call()
        value = await calls.submit(self._call, copy_context())
        return await value if inspect.isawaitable(value) else value  # a lambda that calls an async function

    def _encoded(self, value: Any) -> bytes:
        try:
            return self._returns.encode_result(value, MAX_STEP_BYTES) or b"null"
        except (NotSerialisable, PayloadTooLarge) as error:
            raise type(error)(f"step {self.name!r}: {error.message}", fix=error.fix) from error


class StepCall:
    """`job.step`: call it with a name, a function and its arguments, or choose its `options` first."""

    __slots__ = ("_options", "_run")

    def __init__(self, run: Callable[[Step], Awaitable[Any]], options: StepOptions = PLAIN) -> None:
        self._run = run
        self._options = options

    @overload
    def __call__(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(
        self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    async def __call__(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn(*args, **kwargs)` once in the life of the job, and answer what it returned.

        A plain function runs in a thread. Its result is recorded as JSON before this returns, and later attempts are
        answered from there, rebuilt from the return annotation. An error is not recorded, unless the options say so.
        """
        return await self._run(Step(name, fn, args, kwargs, self._options))

    def options(
        self,
        *,
        on_error: OnError = "raise",
        retry: Retry | int | Sequence[Duration] | RetryFunction | None = None,
    ) -> StepCall:
        """The same with options.

        `on_error="keep"` records an error too: it is raised as StepFailed, in this attempt and in later ones.
        `retry` tries again within the attempt what may pass.
        """
        if on_error not in get_args(OnError):
            raise InvalidOption(f"on_error={on_error!r} is unknown", fix=did_you_mean(str(on_error), get_args(OnError)))
        return StepCall(self._run, StepOptions(on_error, None if retry is None else Retry.of(retry)))


def step_key(job: bytes) -> str:
    """The idempotency key of the step whose function runs here: the same in every attempt."""
    name = inside.get()
    if name is None:
        raise WrongContext(
            "step_key is the key of a step, and no step's function runs here",
            fix='read it inside the function that you pass to step("charge", charge)',
        )
    return f"{id_text(job)}:{name}"


def _pause_s(retry: Retry | None, tries: int, error: Exception, classifiers: Sequence[Classifier]) -> float | None:
    """How long to wait before the next try, no less than the answer asks for; None when there is none."""
    if retry is None or tries >= retry.attempts:
        return None
    outcome = _outcome(error, classifiers)
    if not isinstance(outcome, Raised) or outcome.failure.kind not in _MAY_PASS:
        return None
    asked_s = (outcome.retry_after_ms or 0) / 1000
    if asked_s > _PATIENCE_S:
        return None
    if retry.function is not None:
        wait_s = retry.function(tries, error)
        return None if wait_s is None else max(asked_s, wait_s)
    return max(asked_s, delay_ms(Policy(**retry.policy_fields()), tries, random.Random()) / 1000)


def _outcome(error: Exception, classifiers: Sequence[Classifier]) -> Outcome:
    """Raised when the step has failed; else it was told something about its job or a key: a signal, a 429, no money."""
    return outcome_of(error, classifiers, now_ms=time.time_ns() // 1_000_000)
