"""Judges how an attempt ended, and has core decide what becomes of its job."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import time
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from limpet.core.endings.classify import outcome_of
from limpet.core.endings.decide import decide, unjudgeable
from limpet.core.endings.failure import failure_of, fingerprint
from limpet.core.endings.outcome import (
    CancelledByRequest,
    Crashed,
    HandedBack,
    Limited,
    Outcome,
    Raised,
    Suspended,
    TimedOut,
    Unfit,
)
from limpet.core.endings.refusal import code_needed, for_any_code
from limpet.core.endings.transition import Bury, Failure, Transition
from limpet.core.endings.verdict import Classifier
from limpet.core.errors import NotSerialisable, PayloadTooLarge
from limpet.runtime.attempt import Attempt
from limpet.runtime.log import job_log
from limpet.runtime.suspension import Suspension
from limpet.runtime.threads import NoThread

LONGEST_CHAIN: Final = 16  # of causes that are looked through
# What other people's code may raise while it is asked about an error: a property, a __str__, a function of the task.
TROUBLE: Final = (Exception, SystemExit, GeneratorExit)


class Abandoned(BaseException):
    """A sync call was given up at its hard timeout or at shutdown; its thread may still run, and is fenced."""


class Unreadable(Exception):
    """The stored arguments cannot become a call; why is the cause."""


def given_up(attempt: Attempt, trouble: BaseException) -> Transition:
    """The last net: one attempt that cannot be judged ends its own job, never the worker."""
    job_log(logging.ERROR, "could not classify the end of a job", attempt.job, trouble=type(trouble).__name__)
    return unjudgeable(attempt.job, trouble)


def decided(attempt: Attempt, outcome: Outcome, rng: random.Random, error: BaseException | None = None) -> Transition:
    """Core's decision, with what the task says about its own retries and limits."""
    job, spec = attempt.job, attempt.spec
    if isinstance(outcome, Limited) and outcome.key is not None:
        outcome = replace(outcome, key=spec.filled(job.lane, outcome.key))
    function, learns = spec.retry.function, spec.learns(job.lane)
    ended = decide(job, outcome, rng=rng, retry_function=function, error=error, learns=learns)
    if isinstance(ended, Bury) and code_needed(job.lane) is not None:
        return replace(ended, lane=for_any_code(job.lane))  # a person's retry goes to all workers again
    return ended


def judge(attempt: Attempt, error: BaseException, classifiers: Sequence[Classifier]) -> Outcome:
    """What an attempt that ended with `error` came to."""
    match error:
        case Unreadable(__cause__=why) if why is not None:
            return Unfit(failure_of(why, "permanent"), attempt.spec.signature.fingerprint)
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


def without_secrets(attempt: Attempt, outcome: Outcome, error: BaseException) -> Outcome:
    """The outcome as it is stored and logged: no text of it holds a secret of its job, not even as a hash."""
    if not attempt.spec.hidden:
        return outcome
    texts = {name: getattr(outcome, name, None) for name in ("reason", "message")}
    changed: dict[str, object] = {name: attempt.hide(text) for name, text in texts.items() if text}
    failure: Failure | None = getattr(outcome, "failure", None)
    if failure is not None:
        message, told = attempt.hide(failure.message), attempt.hide(failure.traceback)
        cause = failure.cause if message == failure.message else fingerprint(error, failure.type, message)
        changed["failure"] = replace(failure, message=message, traceback=told, cause=cause)
    return replace(outcome, **changed)


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
    # Without a request: something inside the handler was cancelled, which is a failure like any other.
    return Raised(failure_of(error, "transient"))


def is_exhausted(error: BaseException) -> bool:
    """True when the process had no memory, no file or no thread left for the handler."""
    link: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if link is None:
            return False
        if isinstance(link, MemoryError | NoThread) or (isinstance(link, OSError) and link.errno == errno.EMFILE):
            return True
        link = link.__cause__ or link.__context__
    return False
