"""Decides what will change for a job when one attempt has ended: outcome in, transition out."""

from __future__ import annotations

import math
import random
from typing import Final

from holdfast.core.duration import text_of_ms
from holdfast.core.lease import Claimed
from holdfast.core.outcome import (
    CancelAsked,
    CancelledByRequest,
    Crashed,
    DeadAsked,
    HandedBack,
    LaterAsked,
    Limited,
    Outcome,
    Raised,
    Returned,
    SnoozeAsked,
    TimedOut,
)
from holdfast.core.retry import RetryFunction, delay_ms
from holdfast.core.transition import Bury, Drop, Failure, Hold, Lose, Release, RetryAfter, Snooze, Succeed, Transition

HOLD_FIRST_MS: Final = 1_000  # a 429 that names no time: 1 s, doubled each time the same job meets one
HOLD_CAP_MS: Final = 60_000
HOLD_JITTER: Final = 0.1  # workers on one key must not come back in the same instant


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
    limit key that a 429 without a key of its own holds, when the task marks one.
    """
    match outcome:
        case Returned(result):
            return Succeed(job.id, job.token, result)
        case Raised(failure, retry_after_ms, fatal):
            if fatal or failure.kind == "permanent":
                return Bury(job.id, job.token, failure)
            if failure.kind == "rate_limited":
                return _hold(job, Limited(retry_after_ms, None, failure.message, failure), rng, learns)
            return _again(job, failure, rng, retry_function, error, least_ms=retry_after_ms or 0)
        case TimedOut():
            return _again(job, _timeout(outcome), rng, retry_function, error)
        case LaterAsked(asked_ms, failure):
            if job.attempt >= job.policy.attempts:
                return Bury(job.id, job.token, failure)
            return RetryAfter(job.id, job.token, failure, asked_ms)
        case SnoozeAsked(asked_ms, reason):
            held = _held_too_long(job, reason or "snoozed", None)
            return held or Snooze(job.id, job.token, asked_ms, reason)
        case Limited():
            return _hold(job, outcome, rng, learns)
        case DeadAsked(reason, why):
            return Bury(job.id, job.token, why or Failure("permanent", "holdfast.Dead", reason))
        case CancelAsked(reason):
            return Drop(job.id, job.token, reason)
        case CancelledByRequest(reason):
            return Drop(job.id, job.token, reason)
        case HandedBack(started):
            return Release(job.id, job.token, started)
        case Crashed(proven, reason):
            return Lose(job.id, job.token, proven, reason)


def _again(
    job: Claimed,
    failure: Failure,
    rng: random.Random,
    function: RetryFunction | None,
    error: BaseException | None,
    least_ms: int = 0,
) -> Transition:
    """Retry while attempts are left."""
    if job.attempt >= job.policy.attempts:
        return Bury(job.id, job.token, failure)
    wait_ms: int | None = delay_ms(job.policy, job.attempt, rng)
    if function is not None and error is not None:
        wait_ms = _asked_ms(function, job.attempt, error, wait_ms)
    if wait_ms is None:
        return Bury(job.id, job.token, failure)
    # The other side's Retry-After is a lower bound, itself bounded: a broken header must not park a job for a year.
    return RetryAfter(job.id, job.token, failure, max(wait_ms, min(least_ms, job.policy.max_held_ms)))


def _asked_ms(function: RetryFunction, attempt: int, error: BaseException, otherwise_ms: int | None) -> int | None:
    """What the task's own function says; a function that fails itself must not cost the job its outcome."""
    try:
        seconds = function(attempt, error)
        if seconds is None:
            return None
        ms = float(seconds) * 1000
    except Exception:
        return otherwise_ms
    return round(ms) if math.isfinite(ms) and ms >= 0 else otherwise_ms


def _timeout(outcome: TimedOut) -> Failure:
    after = text_of_ms(outcome.after_ms)
    message = f"hard timeout: no end after {after}" if outcome.hard else f"timed out after {after}"
    known = outcome.failure
    if known is None:
        return Failure("timeout", "TimeoutError", message, cause="hard-timeout" if outcome.hard else "timeout")
    return Failure("timeout", known.type, known.message or message, known.traceback, known.cause)


def _hold(job: Claimed, limited: Limited, rng: random.Random, learns: str | None) -> Transition:
    message = limited.message or "rate limited"
    buried = _held_too_long(job, message, limited.failure)
    if buried is not None:
        return buried
    wait_ms = limited.retry_after_ms
    if wait_ms is None:
        wait_ms = min(HOLD_CAP_MS, HOLD_FIRST_MS << min(job.held, 16))
    wait_ms = min(wait_ms, job.policy.max_held_ms)
    return Hold(job.id, job.token, _gate(job, limited.key or learns), wait_ms + _spread_ms(wait_ms, rng), message)


def _spread_ms(wait_ms: int, rng: random.Random) -> int:
    return rng.randint(0, max(1, int(wait_ms * HOLD_JITTER)))


def _gate(job: Claimed, key: str | None) -> str:
    lane = job.lane
    if key is None:
        key = next(iter((*lane.limits, *lane.keys)), None)
    return f"task:{lane.task}" if key is None else f"limit:{key}"


def _held_too_long(job: Claimed, message: str, failure: Failure | None) -> Bury | None:
    """A job that is put off for ever is work nobody sees failing: after 100 times or a day, a person looks."""
    policy = job.policy
    since_ms = 0 if job.held_since_ms is None else job.claimed_at_ms - job.held_since_ms
    if job.held < policy.max_held and since_ms < policy.max_held_ms:
        return None
    text = f"put off {job.held} times over {text_of_ms(since_ms)}: {message}"
    known = failure or Failure("rate_limited", "holdfast.HeldTooLong", "", cause="held-too-long")
    return Bury(job.id, job.token, Failure(known.kind, known.type, text, known.traceback, known.cause))
