"""What a handler may raise to say how its attempt ends: the only exceptions that are answers."""

from __future__ import annotations

from datetime import timedelta

from holdfast.core.duration import Duration, to_ms
from holdfast.core.pushback import instant_of


class JobSignal(Exception):
    """Base of the exceptions by which a handler decides its own job's fate."""


class RetryLater(JobSignal):
    """This attempt failed and counts; run again after `seconds`."""

    def __init__(self, seconds: Duration, reason: str = "") -> None:
        self.delay_ms = to_ms(seconds, what="RetryLater(seconds)")
        self.reason = reason
        super().__init__(reason or f"retry in {self.delay_ms / 1000:g} s")


class Snooze(JobSignal):
    """Not now: run again after `seconds`, no attempt spent."""

    def __init__(self, seconds: Duration, reason: str = "") -> None:
        self.delay_ms = to_ms(seconds, what="Snooze(seconds)")
        self.reason = reason
        super().__init__(reason or f"snoozed for {self.delay_ms / 1000:g} s")


class Dead(JobSignal):
    """No retry can help: into the dead-letter queue now."""

    def __init__(self, why: str) -> None:
        self.reason = str(why)
        super().__init__(self.reason)


class Cancel(JobSignal):
    """The job is no longer wanted: cancelled, with its dependents."""

    def __init__(self, why: str = "") -> None:
        self.reason = str(why)
        super().__init__(self.reason)


class RateLimited(JobSignal):
    """The other side asked us to slow down: hold `key` for every worker; no attempt spent.

    `retry_after` may be what a Retry-After header says: seconds or a date. A time that has passed is no time.
    """

    def __init__(self, retry_after: Duration | None = None, key: str | None = None) -> None:
        self.retry_after_ms: int | None = None
        self.retry_at_ms: int | None = None  # when an instant was named
        self.key = key
        text = "rate limited" if key is None else f"rate limited on {key!r}"
        if isinstance(retry_after, str):
            self.retry_at_ms = instant_of(retry_after)
        if self.retry_at_ms is not None:
            text = f"{text}, retry after {retry_after}"
        elif retry_after is not None:
            self.retry_after_ms = to_ms(_not_before_now(retry_after), what="RateLimited(retry_after)")
            text = f"{text}, retry after {self.retry_after_ms / 1000:g} s"
        super().__init__(text)


def _not_before_now(wait: Duration) -> Duration:
    """Who computes a wait from an instant may be a little late."""
    if isinstance(wait, timedelta):
        return max(wait, timedelta(0))
    return 0 if isinstance(wait, int | float) and not isinstance(wait, bool) and wait < 0 else wait
