"""Counts in one worker how jobs of each task ended during the last minute."""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable
from typing import Final

from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.minute import BOUNDS_S, MINUTE_S, Minute, Tally, summed

SLICE_S: Final = 5.0  # how much is forgotten at a time
FRESH_S: Final = 1.0  # beats may come more often, and the sum over many tasks costs some milliseconds
_RAN: Final = frozenset({"succeeded", "retried", "dead"})  # of the others the time says nothing about their task


class MinuteCounter:
    """The worker's loop counts, the heartbeat's thread asks. Slices of some seconds, the oldest forgotten."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._open: dict[str, Tally] = {}
        self._since_s = self._said_at_s = clock_s()
        self._closed: deque[tuple[float, dict[str, Tally]]] = deque()  # with the time at which each began
        self._said: Minute | None = None

    def ended(self, job: Claimed, counted: str, run_s: float) -> None:
        """Count an attempt. For every job: no more than it must be."""
        task = job.lane.task
        tally = self._open.get(task)
        if tally is None:
            tally = self._open[task] = Tally()
        ended = tally.ended
        ended[counted] = ended.get(counted, 0) + 1
        if counted in _RAN:
            bucket = bisect(BOUNDS_S, run_s)
            tally.runs[bucket] = tally.runs.get(bucket, 0) + 1
            bucket = bisect(BOUNDS_S, (job.claimed_at_ms - job.due_at_ms) / 1000)
            tally.waits[bucket] = tally.waits.get(bucket, 0) + 1

    def said(self) -> Minute:
        """What ended during the last minute."""
        now_s = self._clock_s()
        if self._said is not None and now_s - self._said_at_s < FRESH_S:
            return self._said
        if now_s - self._since_s >= SLICE_S:
            self._closed.append((self._since_s, self._open))
            self._open, self._since_s = {}, now_s  # an end that is just being counted goes into the slice before
        while self._closed and self._closed[0][0] < now_s - MINUTE_S - SLICE_S:
            self._closed.popleft()
        slices = [*(tallies for _, tallies in self._closed), self._open]
        names = {name for tallies in slices for name in tallies.copy()}
        whole = {name: summed(tallies[name] for tallies in slices if name in tallies) for name in names}
        first_s = self._closed[0][0] if self._closed else self._since_s
        self._said, self._said_at_s = Minute.of(whole, now_s - first_s), now_s
        return self._said
