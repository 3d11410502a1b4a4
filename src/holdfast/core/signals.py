"""What a handler may raise to say how its attempt ends: the only exceptions that are answers."""

from __future__ import annotations

from holdfast.core.duration import Duration, to_ms


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
    """The other side asked us to slow down: hold `key` for every worker; no attempt spent."""

    def __init__(self, retry_after: Duration | None = None, key: str | None = None) -> None:
        self.retry_after_ms = None if retry_after is None else to_ms(retry_after, what="RateLimited(retry_after)")
        self.key = key
        text = "rate limited" if key is None else f"rate limited on {key!r}"
        super().__init__(
            text if retry_after is None else f"{text}, retry after {(self.retry_after_ms or 0) / 1000:g} s"
        )
