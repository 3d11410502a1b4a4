"""Counts in one worker how jobs of each task ended, and says what has come since, or during the last minute."""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable
from typing import Final

from limpet.core.jobs.job import Lane
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.minute import BOUNDS_S, MINUTE_S, Key, Minute, Tally

SLICE_S: Final = 5.0  # how much is forgotten at a time
FRESH_S: Final = 1.0  # beats may come more often, and the sum over many tasks costs some milliseconds
_RAN: Final = frozenset({"succeeded", "retried", "dead"})  # of the others the time says nothing about their task


class AttemptCounter:
    """The worker's loop counts, and counts only grow: other threads read them, each what has come since it last did."""

    def __init__(self, *, exemplars: bool = False) -> None:
        self.tallies: dict[Key, Tally] = {}
        self._lane: Lane | None = None  # of the last attempt: most often the next one has the same
        self._tally = Tally()
        # The meta of the newest attempt, for each bucket of run time of each task; None: nothing asks for it.
        self.exemplars: dict[tuple[str, str, int], tuple[bytes, float, float]] | None = {} if exemplars else None

    def ended(self, job: Claimed, counted: str, run_s: float) -> None:
        """Count an attempt. For every job: no more than it must be."""
        lane = job.lane
        if lane is self._lane:
            tally = self._tally
        else:
            tally = self._tally = self._tally_of(lane)
            self._lane = lane
        ended = tally.ended
        ended[counted] = ended.get(counted, 0) + 1
        if counted in _RAN:
            bucket = bisect(BOUNDS_S, run_s)
            tally.runs[bucket] = tally.runs.get(bucket, 0) + 1
            tally.run_s += run_s
            wait_s = (job.claimed_at_ms - job.due_at_ms) / 1000
            if self.exemplars is not None and job.meta:
                self.exemplars[lane.queue, lane.task, bucket] = job.meta, run_s, wait_s
            bucket = bisect(BOUNDS_S, wait_s)
            tally.waits[bucket] = tally.waits.get(bucket, 0) + 1
            tally.wait_s += wait_s

    def _tally_of(self, lane: Lane) -> Tally:
        key = lane.queue, lane.task
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = Tally()
        return tally


class Reading:
    """What one reader has seen of the counts. An attempt that is counted meanwhile is told now, or the next time."""

    def __init__(self, counter: AttemptCounter) -> None:
        self._counter = counter
        self._seen: dict[Key, Tally] = {}

    def news(self, *, keep: bool = True) -> dict[Key, Tally]:
        """What has come since the last time; with `keep=False` it is told again."""
        found: dict[Key, Tally] = {}
        for key, tally in self._counter.tallies.copy().items():
            before = self._seen.get(key)
            if before is not None and before.ended == tally.ended and before.runs == tally.runs:
                continue
            now = tally.copy()
            found[key] = now if before is None else now.since(before)
            if keep:
                self._seen[key] = now.copy() if before is None else now
        return found


class MinuteCounter:
    """Says what ended during the last minute: in slices of some seconds, the oldest forgotten."""

    def __init__(self, counter: AttemptCounter, clock_s: Callable[[], float]) -> None:
        self._reading = Reading(counter)
        self._clock_s = clock_s
        self._since_s = self._said_at_s = clock_s()
        self._closed: deque[tuple[float, dict[Key, Tally]]] = deque()  # with the time at which each began
        self._said: Minute | None = None

    def said(self) -> Minute:
        """What ended during the last minute."""
        now_s = self._clock_s()
        if self._said is not None and now_s - self._said_at_s < FRESH_S:
            return self._said
        if now_s - self._since_s >= SLICE_S:
            self._closed.append((self._since_s, self._reading.news()))
            self._since_s = now_s
        while self._closed and self._closed[0][0] < now_s - MINUTE_S - SLICE_S:
            self._closed.popleft()
        slices = [*(tallies for _, tallies in self._closed), self._reading.news(keep=False)]
        whole: dict[str, Tally] = {}
        for tallies in slices:
            for (_, task), tally in tallies.items():
                whole.setdefault(task, Tally()).add(tally)
        first_s = self._closed[0][0] if self._closed else self._since_s
        self._said, self._said_at_s = Minute.of(whole, now_s - first_s), now_s
        return self._said
