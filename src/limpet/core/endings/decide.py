"""Decides what will change for a job when one attempt has ended: outcome in, transition out."""

from __future__ import annotations

import random
from typing import Final

from limpet.core.endings.outcome import (
    CancelAsked,
    CancelledByRequest,
    Completed,
    Crashed,
    DeadAsked,
    HandedBack,
    LaterAsked,
    Limited,
    Outcome,
    Raised,
    Returned,
    SnoozeAsked,
    Suspended,
    TimedOut,
    Unfit,
)
from limpet.core.endings.retry import RetryFunction, delay_ms
from limpet.core.endings.transition import (
    Bury,
    Drop,
    Failure,
    Hold,
    Lose,
    Refuse,
    Release,
    RetryAfter,
    Snooze,
    Succeed,
    Suspend,
    Transition,
)
from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Claimed
from limpet.core.limits.budget import first_limit
from limpet.core.tasks.template import MAX_KEY_CHARS
from limpet.core.text.duration import LONGEST_WAIT_MS, bounded_ms, text_of_ms
from limpet.core.text.storable import storable

HOLD_FIRST_MS: Final = 1_000  # a 429 that names no time: 1 s, doubled each time the same job meets one
HOLD_CAP_MS: Final = 60_000
HOLD_AGAIN_MS: Final = 10  # doubled each time, up to a second: "at once" that is refused again is no answer
SPENT_PROBE_MS: Final = 600_000  # no money left: a person has to act, and one call in ten minutes sees that they did
HOLD_JITTER: Final = 0.1  # workers on one key must not come back in the same instant
HOLD_JITTER_MS: Final = 10_000  # at most: a key that is held for hours must not idle for minutes after that

# What becomes of a job that was completed in a transaction which then was not committed: it did nothing.
NOT_COMMITTED: Final = Failure(
    "transient",
    "limpet.NotCommitted",
    "complete() was called, and its transaction was not committed",
    cause="not-committed",
)


def decide(
    job: Claimed,
    outcome: Outcome,
    *,
    rng: random.Random,
    retry_function: RetryFunction | None = None,
    error: BaseException | None = None,
    learns: str | None = None,
) -> Transition:
    """The one transition for this attempt.

    `retry_function` (with the `error` it is asked about) replaces the policy's delays; `learns` is the
    limit key that pushback without a key of its own holds, when the task marks one.
    """
    match outcome:
        case Returned(result):
            return Succeed(job.id, job.token, result)
        case Completed():
            return _again(job, NOT_COMMITTED, rng, None, None)
        case Raised(failure, retry_after_ms, fatal):
            if fatal or failure.kind == "permanent":
                return Bury(job.id, job.token, failure)
            if failure.kind in ("rate_limited", "spent"):
                spent = failure.kind == "spent"
                return _hold(job, Limited(retry_after_ms, None, failure.message, failure, spent), rng, learns)
            return _again(job, failure, rng, retry_function, error, least_ms=retry_after_ms or 0)
        case TimedOut():
            return _again(job, _timeout(outcome), rng, retry_function, error)
        case LaterAsked(asked_ms, failure):
            if is_last(job):
                return Bury(job.id, job.token, failure)
            return RetryAfter(job.id, job.token, failure, _wait_ms(asked_ms))
        case SnoozeAsked(asked_ms, reason):
            text = storable(reason)
            held = _held_too_long(job, text or "snoozed", None)
            return held or Snooze(job.id, job.token, _wait_ms(asked_ms), text)
        case Suspended(asked_ms, events):
            return Suspend(job.id, job.token, asked_ms, events)
        case Limited():
            return _hold(job, outcome, rng, learns)
        case DeadAsked(reason, why):
            return Bury(job.id, job.token, why or Failure("permanent", "limpet.Dead", storable(reason)))
        case CancelAsked(reason) | CancelledByRequest(reason):
            return Drop(job.id, job.token, storable(reason))
        case HandedBack(started):
            return Release(job.id, job.token, started)
        case Unfit(failure, signature):
            return Refuse(job.id, job.token, failure, signature)
        case Crashed(proven, reason):
            return Lose(job.id, job.token, proven, storable(reason))


def is_last(job: Claimed) -> bool:
    """Whether a failure of this attempt ends the job, unless it ends it anyway: the policy has no attempt left.

    A function of the task may end the job before, and what puts it off (Snooze, a 429) costs no attempt.
    """
    return job.attempt >= job.policy.attempts


def awaits_commit(transition: Transition) -> bool:
    """True for what is asked when a completed handler has returned: it takes effect only without the commit."""
    return isinstance(transition, (RetryAfter, Bury)) and transition.failure == NOT_COMMITTED


def unjudgeable(job: Claimed, trouble: BaseException) -> Bury:
    """The end of an attempt whose outcome cannot be told: one such job must not cost the worker all the others."""
    return _beyond_help(job.id, job.token, "limpet.Unjudgeable", "judging how the attempt ended raised", trouble)


def unwritable(transition: Transition, trouble: BaseException) -> Bury:
    """What is written instead of a transition that the engine cannot write."""
    what = f"the engine could not write how it ended ({type(transition).__name__}):"
    return _beyond_help(transition.id, transition.token, "limpet.Unwritable", what, trouble)


def _beyond_help(id: bytes, token: int, type_name: str, what: str, trouble: BaseException) -> Bury:
    # Plain words and a class name made plain: whatever was wrong with the text must not come along.
    name = ascii(type(trouble).__name__)[1:-1][:100]
    return Bury(id, token, Failure("permanent", type_name, f"{what} {name}", cause=type_name))


def _wait_ms(asked_ms: int) -> int:
    """The delay that a handler asked for; an invalid value counts as 0."""
    return bounded_ms(asked_ms) or 0


def _again(
    job: Claimed,
    failure: Failure,
    rng: random.Random,
    function: RetryFunction | None,
    error: BaseException | None,
    least_ms: int = 0,
) -> Transition:
    """Retry while attempts are left."""
    if is_last(job):
        return Bury(job.id, job.token, failure)
    wait_ms: int | None = delay_ms(job.policy, job.attempt, rng)
    if function is not None and error is not None:
        wait_ms = _asked_ms(function, job.attempt, error, wait_ms)
    if wait_ms is None:
        return Bury(job.id, job.token, failure)
    # The provider's Retry-After is a lower bound, itself bounded: a broken header must not park a job for a year.
    wait_ms = min(wait_ms, LONGEST_WAIT_MS)
    return RetryAfter(job.id, job.token, failure, max(wait_ms, min(least_ms, job.policy.max_held_ms)))


def _asked_ms(function: RetryFunction, attempt: int, error: BaseException, otherwise_ms: int | None) -> int | None:
    """What the task's own function says; a function that fails itself must not cost the job its outcome."""
    try:
        seconds = function(attempt, error)
        if seconds is None:
            return None
        return bounded_ms(float(seconds) * 1000, otherwise_ms)
    except Exception:
        return otherwise_ms


def _timeout(outcome: TimedOut) -> Failure:
    after = text_of_ms(outcome.after_ms)
    message = f"hard timeout: no end after {after}" if outcome.hard else f"timed out after {after}"
    known = outcome.failure
    if known is None:
        return Failure("timeout", "TimeoutError", message, cause="hard-timeout" if outcome.hard else "timeout")
    return Failure("timeout", known.type, known.message or message, known.traceback, known.cause)


def _hold(job: Claimed, limited: Limited, rng: random.Random, learns: str | None) -> Transition:
    message = storable(limited.message) or "rate limited"
    if limited.spent:
        message = f"no money or quota left: {storable(limited.message) or 'the provider gave no message'}"
    buried = _held_too_long(job, message, limited.failure)
    if buried is not None:
        return buried
    gate = pushed_gate(job.lane, limited.key or learns)
    if limited.spent:
        return Hold(job.id, job.token, gate, SPENT_PROBE_MS, message, trips=True)
    wait_ms = bounded_ms(limited.retry_after_ms)
    if wait_ms is None:
        wait_ms = min(HOLD_CAP_MS, HOLD_FIRST_MS << min(job.held, 16))
    elif job.held:
        wait_ms = max(wait_ms, min(HOLD_FIRST_MS, HOLD_AGAIN_MS << min(job.held, 16)))
    wait_ms = min(wait_ms, job.policy.max_held_ms)
    return Hold(job.id, job.token, gate, wait_ms + _spread_ms(wait_ms, rng), message)


def _spread_ms(wait_ms: int, rng: random.Random) -> int:
    return rng.randint(0, min(HOLD_JITTER_MS, max(1, int(wait_ms * HOLD_JITTER))))


def pushed_gate(lane: Lane, key: str | None) -> str:
    """The gate that pushback is about: that of the key, else of the first limit, else of the task."""
    if key is None:
        key = first_limit(lane)
    return f"task:{lane.task_scope}" if key is None else f"limit:{storable(key, MAX_KEY_CHARS)}"


def _held_too_long(job: Claimed, message: str, failure: Failure | None) -> Bury | None:
    """A job that is put off for ever would fail unnoticed: after 100 times or a day it is dead, and a person looks."""
    policy = job.policy
    since_ms = 0 if job.held_since_ms is None else job.claimed_at_ms - job.held_since_ms
    if job.held < policy.max_held and since_ms < policy.max_held_ms:
        return None
    text = f"put off {job.held} times over {text_of_ms(since_ms)}: {message}"
    known = failure or Failure("rate_limited", "limpet.HeldTooLong", "", cause="held-too-long")
    return Bury(job.id, job.token, Failure(known.kind, known.type, text, known.traceback, known.cause))
