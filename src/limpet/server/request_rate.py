"""Decides whether one more request fits the rate that each token has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from limpet.core.access.refusal import TooManyRequests
from limpet.core.limits.rate import checked_burst, parse_rate

MOST: Final = 10_000  # callers that are remembered; a user's own hook may name any number


class RequestRate:
    """A bucket for each caller that was admitted, in this process."""

    def __init__(self, rate: str, burst: int | None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        count, interval_us = parse_rate(rate)
        self._rate = rate
        self._interval_s = interval_us / 1_000_000
        self._fill_s = checked_burst(burst, count, interval_us, what=f"burst={burst}") * self._interval_s
        self._monotonic_s = monotonic_s
        self._full_at_s: dict[str, float] = {}  # by caller: when the bucket is full again

    def take(self, caller: str) -> None:
        """Count one request, or refuse it."""
        now_s = self._monotonic_s()
        full_at_s = max(now_s, self._full_at_s.get(caller, now_s)) + self._interval_s
        over_s = full_at_s - now_s - self._fill_s
        if over_s > 1e-9:
            raise TooManyRequests(
                f"{caller} has made more than {self._rate} requests",
                fix="wait as long as Retry-After says; [server] rate and burst say how many a token may make",
                retry_after_s=over_s,
            )
        if len(self._full_at_s) >= MOST:
            self._full_at_s = {name: at_s for name, at_s in self._full_at_s.items() if at_s > now_s}
        self._full_at_s[caller] = full_at_s
