"""Decides how many jobs to hold ahead of free places: a few milliseconds of work, and none when jobs are slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_AHEAD: Final = 1_024
LEAST_AHEAD: Final = 2  # for quick jobs, so that the next one is there when one ends
_WINDOW_S: Final = 0.02  # shorter, and one batch of a thousand looks like a rate


class Pace:
    """Observed completions per second and the mean time a job takes."""

    def __init__(self, ahead_ms: int, clock_s: Callable[[], float]) -> None:
        self._ahead_s = ahead_ms / 1000
        self._clock_s = clock_s
        self._since_s = clock_s()
        self.ended = 0  # in this window
        self.busy_s = 0.0  # time that those took, summed
        self._rate = 0.0
        self._mean_s = 0.0

    def ahead(self) -> int:
        """How many jobs may wait here for a place."""
        self._look()
        ahead = int(self._rate * self._ahead_s)
        if ahead >= LEAST_AHEAD:
            return min(ahead, MOST_AHEAD)
        return LEAST_AHEAD if self._rate > 0 and self._mean_s <= self._ahead_s else 0

    def stall(self) -> None:
        """Nothing ended for a while: forget the old rate at once."""
        self._rate = 0.0
        self._begin(self._clock_s())

    def _look(self) -> None:
        now_s = self._clock_s()
        passed_s = now_s - self._since_s
        if passed_s < _WINDOW_S or not self.ended:
            return
        rate = self.ended / passed_s
        # An idle stretch says nothing about speed, so a long window counts no more than a short one.
        self._rate = rate if not self._rate else (self._rate + rate) / 2
        self._mean_s = self.busy_s / self.ended
        self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        self._since_s, self.ended, self.busy_s = now_s, 0, 0.0
