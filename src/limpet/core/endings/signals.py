"""What a handler may raise to say how its attempt ends: the only exceptions that are answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, TypeVar

from limpet.core.endings.failure import failure_of, message_of
from limpet.core.endings.outcome import CancelAsked, DeadAsked, LaterAsked, Limited, Outcome, SnoozeAsked
from limpet.core.errors import InvalidOption
from limpet.core.limits.pushback import named_time
from limpet.core.text.duration import Duration, to_ms

S = TypeVar("S", bound="JobSignal")


class JobSignal(Exception):
    """Base of the exceptions by which a handler decides how its attempt ends."""

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome | None:
        """What it asks for; `error` is what was raised, this or a group around it. None: nothing, it is an error."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled as it is, not constructed again: its text is not a time, and a subclass may have any constructor.
        return _blank, (type(self), self.args), vars(self)


def _blank(kind: type[S], args: tuple[object, ...]) -> S:
    return kind.__new__(kind, *args)


class RetryLater(JobSignal):
    """This attempt failed and counts; run again after `seconds`."""

    def __init__(self, seconds: Duration, reason: str = "") -> None:
        self.delay_ms = to_ms(seconds, what="RetryLater(seconds)")
        self.reason = reason
        super().__init__(reason or f"retry in {self.delay_ms / 1000:g} s")

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome:
        return LaterAsked(self.delay_ms, failure_of(error, "transient"))


class Snooze(JobSignal):
    """Not now: run again after `seconds`, no attempt spent."""

    def __init__(self, seconds: Duration, reason: str = "") -> None:
        self.delay_ms = to_ms(seconds, what="Snooze(seconds)")
        self.reason = reason
        super().__init__(reason or f"snoozed for {self.delay_ms / 1000:g} s")

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome:
        return SnoozeAsked(self.delay_ms, self.reason)


class Dead(JobSignal):
    """No retry can help: into the dead-letter queue now."""

    def __init__(self, why: str) -> None:
        self.reason = str(why)
        super().__init__(self.reason)

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome:
        return DeadAsked(self.reason, failure_of(error, "permanent"))


class Cancel(JobSignal):
    """The job is no longer wanted: cancelled, with its dependents."""

    def __init__(self, why: str = "") -> None:
        self.reason = str(why)
        super().__init__(self.reason)

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome:
        return CancelAsked(self.reason)


class RateLimited(JobSignal):
    """The provider asked for a lower rate: hold `key` for every worker; no attempt spent.

    `retry_after` may be what a Retry-After header says, whatever that is: seconds, "6m0s", a date. A time that has
    passed is no time, and unreadable text names none: a provider's mistake must not make the job dead.
    """

    def __init__(self, retry_after: Duration | None = None, key: str | None = None) -> None:
        self.retry_after_ms: int | None = None
        self.retry_at_ms: int | None = None  # when an instant was named
        self.key = key
        text = "rate limited" if key is None else f"rate limited on {key!r}"
        if isinstance(retry_after, str):
            self.retry_after_ms, self.retry_at_ms = _said(retry_after)
        elif retry_after is not None:
            self.retry_after_ms = to_ms(_not_before_now(retry_after), what="RateLimited(retry_after)")
        if self.retry_at_ms is not None:
            text = f"{text}, retry after {retry_after}"
        elif self.retry_after_ms is not None:
            text = f"{text}, retry after {self.retry_after_ms / 1000:g} s"
        super().__init__(text)

    def asks_for(self, error: BaseException, now_ms: int | None) -> Outcome:
        return Limited(held_for_ms(self, now_ms), self.key, message_of(self), failure_of(error, "rate_limited"))


def held_for_ms(limited: RateLimited, now_ms: int | None) -> int | None:
    """How long a handler says that its key must be held."""
    if limited.retry_at_ms is None or now_ms is None:
        return limited.retry_after_ms
    return max(0, limited.retry_at_ms - now_ms)


def _said(text: str) -> tuple[int | None, int | None]:
    """The wait or the instant that a header names, or a duration as people write it; neither when it is none."""
    wait_ms, at_ms = named_time(text)
    if at_ms is not None:
        return None, at_ms
    try:
        return to_ms(text if wait_ms is None else wait_ms / 1000, what="RateLimited(retry_after)"), None
    except InvalidOption:
        return None, None


def _not_before_now(wait: Duration) -> Duration:
    """Who computes a wait from an instant may be a little late."""
    if isinstance(wait, timedelta):
        return max(wait, timedelta(0))
    return 0 if isinstance(wait, int | float) and not isinstance(wait, bool) and wait < 0 else wait


# One of each, for a person who asks what it means.
SAMPLES: Final[tuple[JobSignal, ...]] = (RetryLater(60), Snooze(60), Dead("why"), Cancel("why"), RateLimited(60))
