"""Decides how many jobs a claim may take past more urgent ones, and from which level on, so that no level starves."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.job import LEAST_URGENT
from holdfast.core.lease import Claimed


class Ageing:
    """One job in `every` is claimed past more urgent ones (it is *aged*); the less urgent levels take turns.

    A round begins below the most urgent level that was given by priority: whatever is above it waits for nobody. A turn
    goes to the first level that has something, the next one to a level behind it. So each level gets one job in
    nine times `every` at least, and one in so many times as there are levels that wait.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every or 0  # 0: never
        self._claimed = 0  # jobs that were claimed and not given back
        self._paid = 0  # of those, how many the aged ones stand for
        self._best = LEAST_URGENT  # the most urgent level that was given by priority since this round began
        self._turn = 0  # the level whose turn it is; 0: a round begins

    @property
    def most_urgent(self) -> int:
        """The level from which on aged jobs are taken."""
        return self._turn or self._best + 1

    def owed(self, most: int) -> int:
        """How many aged jobs may be claimed now. What a worker could not even hold (`most`) is not made up for."""
        if not self._every or self.most_urgent > LEAST_URGENT:
            return 0
        self._paid = max(self._paid, self._claimed - most * self._every)
        return max(0, self._claimed - self._paid) // self._every

    def count(self, jobs: Sequence[Claimed]) -> None:
        """These were given by priority."""
        if self._every and jobs:
            self._claimed += len(jobs)
            self._best = min(self._best, *(job.lane.priority for job in jobs))

    def took(self, jobs: Sequence[Claimed], kept: Sequence[Claimed]) -> None:
        """These were given as aged ones, and some of them found no place here after all."""
        self._claimed += len(jobs)
        self._paid += self._every * len(kept)
        if kept:
            if not self._turn:
                self._best = LEAST_URGENT
            last = max(job.lane.priority for job in kept)
            self._turn = (last + 1) % (LEAST_URGENT + 1)

    def nobody_came(self, most_urgent: int, *, anybody_could: bool) -> None:
        """Jobs were given, and none from that level on was aged, though it might have been: another round begins."""
        if most_urgent != self.most_urgent:
            return  # two have asked at once, and the other one was answered first
        if self._turn:
            self._turn = 0
        elif anybody_could:
            self._paid = self._claimed  # nobody waits, so nothing is owed

    def give_back(self, count: int) -> None:
        """So many jobs were handed back, unspent."""
        self._claimed -= count
