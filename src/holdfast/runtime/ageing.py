"""Decides when a claim passes over more urgent jobs, and down to which level, so that no level starves."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.job import LEAST_URGENT
from holdfast.core.lease import Claimed

Reach = tuple[bool, bool, bool]  # threads free, processes free, jobs that must start at once allowed


class Ageing:
    """One job in `every` is claimed past more urgent ones (it is *aged*); the less urgent levels take turns.

    A round begins below the most urgent level that other claims were given: those are strict, so whatever is above it
    waits for nobody. Each turn goes to the first level that has something, and the next turn to one behind it. So
    each level gets one job in nine times `every` at least, and the sooner the fewer levels there are.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every or 0  # 0: never
        self._claimed = 0  # jobs that were claimed and not given back
        self._paid = 0  # of those, how many the aged ones stand for
        self._best = LEAST_URGENT  # the most urgent level that other claims gave since this round began
        self._turn = 0  # the level whose turn it is; 0: a round begins
        self._barren: Reach | None = None  # where the last round found nothing
        self._barren_until = 0  # jobs claimed, when it is worth another look

    @property
    def floor(self) -> int:
        """The most urgent level that the next aged claim may take from."""
        return self._turn or self._best + 1

    def owed(self, most: int, reach: Reach) -> int:
        """How many aged jobs may be claimed now. What a worker could not even hold (`most`) is not made up for."""
        if not self._every or self.floor > LEAST_URGENT:
            return 0
        if reach == self._barren and self._claimed < self._barren_until:
            return 0
        self._paid = max(self._paid, self._claimed - most * self._every)
        return max(0, self._claimed - self._paid) // self._every

    def count(self, jobs: Sequence[Claimed]) -> None:
        """Other claims gave these."""
        if self._every:
            self._claimed += len(jobs)
            self._best = min(self._best, *(job.lane.priority for job in jobs))

    def give_back(self, count: int) -> None:
        """So many jobs were handed back, unspent."""
        self._claimed -= count

    def took(self, jobs: Sequence[Claimed], kept: Sequence[Claimed]) -> None:
        """An aged claim gave these jobs, of which some found no place here after all."""
        self._claimed += len(jobs)
        self._paid += self._every * len(kept)
        if kept:
            if not self._turn:
                self._best = LEAST_URGENT
            last = max(job.lane.priority for job in kept)
            self._turn = (last + 1) % (LEAST_URGENT + 1)

    def found_nothing(self, reach: Reach) -> None:
        """An aged claim came back empty: another round begins at once, or after a while if this was its beginning."""
        if self._turn:
            self._turn = 0
            return
        self._barren, self._barren_until = reach, self._claimed + self._every
        if all(reach):
            self._paid = self._claimed  # nobody waits, so nothing is owed
