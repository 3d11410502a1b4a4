"""Decides how many jobs a claim may take past more urgent ones, and from which level on, so that no level starves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from limpet.core.jobs.job import LEAST_URGENT
from limpet.core.jobs.lease import Claimed

Short = tuple[bool, bool, bool]  # which of threads, processes and room at limits a claim may give away


class Ageing:
    """One job in `every` is claimed past more urgent ones (it is *aged*); the less urgent levels take turns.

    A round begins below the most urgent level that was given by priority: no level above it has to wait. A turn
    goes to the first level that has something, the next one to a level behind it. So each level gets one job in
    about nine times `every`, or in `every` times the number of waiting levels.

    Aged jobs are taken first, so if every large claim took its part, whatever falls free one by one (a thread, room at
    a limit) would be theirs alone. Of the claims that may give away such *short* things, one in `every` is for them;
    where not as many came as might have, chance says which, or it might never be one at which there is room.
    """

    def __init__(self, every: int, rng: random.Random) -> None:
        self._every = every
        self._rng = rng
        self._claimed = 0  # jobs that were claimed and not given back
        self._paid = 0  # of those, how many the aged ones stand for
        self._best = LEAST_URGENT  # the most urgent level that was given by priority since this round began
        self._turn = 0  # the level whose turn it is; 0: a round begins
        self._strict: Counter[Short] = Counter()  # claims by priority alone since aged jobs had one like them

    @property
    def most_urgent(self) -> int:
        """The level from which on aged jobs are taken."""
        return self._turn or self._best + 1

    def owed(self, most: int, short: Short) -> int:
        """How many aged jobs may be claimed now. What a worker could not even hold (`most`) is not made up for."""
        if self.most_urgent > LEAST_URGENT:
            return 0
        if any(short) and self._strict[short] < self._every - 1:
            return 0
        self._paid = max(self._paid, self._claimed - most * self._every)
        return max(0, self._claimed - self._paid) // self._every

    def count(self, jobs: Sequence[Claimed], short: Short) -> None:
        """These were given by priority."""
        if jobs:
            self._strict[short] += 1
            self._claimed += len(jobs)
            self._best = min(self._best, *(job.lane.priority for job in jobs))

    def took(self, jobs: Sequence[Claimed], kept: Sequence[Claimed], short: Short, *, asked: int) -> None:
        """These were claimed as aged jobs, at most as many as asked for; some of them found no slot here after all."""
        self._claimed += len(jobs)
        self._paid += self._every * len(kept)
        if kept:
            self._strict[short] = 0 if self._turn or len(jobs) == asked else self._any_time()
            if not self._turn:
                self._best = LEAST_URGENT
            last = max(job.lane.priority for job in kept)
            self._turn = (last + 1) % (LEAST_URGENT + 1)

    def nobody_came(self, most_urgent: int, short: Short, *, anybody_could: bool) -> None:
        """Jobs were given, and none from that level on was aged, though it might have been: another round begins."""
        if most_urgent != self.most_urgent:
            return  # two have asked at once, and the other one was answered first
        if self._turn:
            self._turn = 0
            return
        self._strict[short] = self._any_time()
        if anybody_could:
            # No job waits, so none is owed; except one job, if only room may have been missing.
            self._paid = self._claimed - (self._every if any(short) else 0)

    def give_back(self, count: int) -> None:
        """This number of jobs was handed back, unspent."""
        self._claimed -= count

    def _any_time(self) -> int:
        return self._rng.randint(1 - self._every, self._every - 1)
