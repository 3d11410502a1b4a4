"""Remembers the jobs this worker holds but has not started, most urgent first, and which of them may start now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from heapq import heapify, heappop, heappush
from typing import Final

from limpet.core.jobs.job import LEAST_URGENT, URGENT, Lane
from limpet.core.jobs.lease import Claimed
from limpet.core.tasks.task import TaskSpec

AT_ONCE: Final = -1  # jobs that were claimed for a free slot start before any that were held
AGED: Final = -2  # and before those the ones whose turn it is, or more urgent ones would pass them here after all
MOST_AHEAD: Final = 1_024
LEAST_AHEAD: Final = 2  # for quick jobs, so that the next one is there when one ends
_WINDOW_S: Final = 0.02  # shorter, and one batch of a thousand looks like a rate

Reach = tuple[bool, bool, bool]  # threads free, processes free, jobs that must start at once allowed
_Entry = tuple[int, int, Claimed]  # how urgent, order of arrival


class ClaimSignal:
    """Tells one claimer when to ask the store, and what the last empty answer was about."""

    __slots__ = ("empty_for", "event", "told", "wants_slots")

    def __init__(self, *, wants_slots: bool) -> None:
        self.event = asyncio.Event()
        self.wants_slots = wants_slots  # a free slot is a reason to ask
        self.told = False  # there was news while a claim was under way, whose answer may be older
        self.empty_for: Reach | None = None  # the reach of the last claim, when it found nothing

    def slot_free(self) -> None:
        """A slot is free, or half of the held jobs are gone."""
        if self.wants_slots:
            self.event.set()

    def news(self) -> None:
        """There may be work: ask even if the last answer was empty."""
        self.empty_for = None
        self.told = True
        self.event.set()


class Demand:
    """What the claimers of one worker wait for: free slots here, and news of the store."""

    __slots__ = ("all", "urgent")

    def __init__(self) -> None:
        self.all = ClaimSignal(wants_slots=True)
        self.urgent = ClaimSignal(wants_slots=False)

    def slot_free(self) -> None:
        self.all.slot_free()
        self.urgent.slot_free()

    def news(self) -> None:
        self.all.news()
        self.urgent.news()


class Slots:
    """Slots for jobs of any priority, and on top of them a reserve for urgent jobs alone (D28)."""

    __slots__ = ("busy", "for_all", "ordinary", "size")

    def __init__(self, for_all: int, reserve: int = 0) -> None:
        self.size = for_all + reserve
        self.for_all = for_all
        self.busy = 0
        self.ordinary = 0  # of the busy ones, those with jobs that are not urgent

    def free(self, priority: int = LEAST_URGENT) -> int:
        """How many jobs of that priority could start now; urgent ones that run count against the reserve first."""
        free = self.size - self.busy
        return max(0, free if priority <= URGENT else min(free, self.for_all - self.ordinary))

    def facts(self) -> dict[str, int]:
        """What operators are told: slots for all jobs, the reserve on top, and how many of them are taken."""
        return {
            "places": self.for_all,
            "reserve": self.size - self.for_all,
            "ordinary": self.ordinary,
            "urgent": self.busy - self.ordinary,
        }

    def take(self, priority: int) -> None:
        """A job of that priority starts."""
        self.busy += 1
        if priority > URGENT:
            self.ordinary += 1

    def leave(self, priority: int) -> None:
        """A job of that priority has ended."""
        self.busy -= 1
        if priority > URGENT:
            self.ordinary -= 1


class Pace:
    """Decides how many jobs to hold ahead of free slots: a few milliseconds of work, and none when jobs are slow.

    By observed completions per second and the mean time a job takes.
    """

    def __init__(self, ahead_ms: int, clock_s: Callable[[], float]) -> None:
        self._ahead_s = ahead_ms / 1000
        self._clock_s = clock_s
        self._since_s = clock_s()
        self.ended = 0  # in this window
        self.busy_s = 0.0  # time that those took, summed
        self._rate = 0.0
        self._mean_s = 0.0

    def ahead(self) -> int:
        """How many jobs may wait here for a slot."""
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


class LocalQueue:
    """Two heaps per executor, urgent jobs and others, over shared slots; none that cannot start stops the others."""

    def __init__(
        self,
        tasks: Mapping[str, TaskSpec],
        slots: Slots,
        threads: Slots,
        processes: Slots,
        *,
        isolates: bool,
        demand: Demand,
    ) -> None:
        self.slots = slots
        self.demand = demand
        self.pools: dict[str, Slots | None] = {"async": None, "thread": threads, "process": processes}
        self._executors = {name: spec.executor for name, spec in tasks.items()}
        self.executors = frozenset(self._executors.values())  # that jobs of this worker need
        limited = {spec.executor for spec in tasks.values() if spec.ceilings or spec.breaker is not None}
        self._limited = tuple(limited)
        self._heaps: dict[tuple[str, bool], list[_Entry]] = {
            (name, urgent): [] for name in self.pools for urgent in (True, False)
        }
        self._plain = self._heaps["async", False]
        self._arrived = 0
        self.held = 0
        self._at_once = 0  # of those, how many were claimed for a free slot
        self.newest_token = 0  # of the last claim that was answered
        self.promised = 0  # slots that a claim under way has asked for
        self.started = 0
        self._isolates = isolates  # suspects can be run alone in a process
        self._barred: set[str] = set()  # gates under which nothing starts
        self._aside: list[_Entry] = []  # what is held of those
        self.overtaken = False  # the slots that those were claimed for are for others as well

    def facts(self) -> dict[str, dict[str, int]]:
        """The slots of each kind: of all jobs, and of those executors that tasks of this worker need."""
        pools = {name: pool for name, pool in self.pools.items() if pool is not None and name in self.executors}
        return {"job": self.slots.facts(), **{name: pool.facts() for name, pool in pools.items()}}

    def idle(self, executor: str, priority: int) -> bool:
        """True when a job of that priority finds a slot of that executor, besides those that are held for it."""
        return self.spare(executor, priority) > 0

    def reach(self, priority: int, slots: int) -> Reach:
        """The jobs of that priority that could start with this number of free slots."""
        return self.idle("thread", priority), self.idle("process", priority), slots > 0

    def spare(self, executor: str, priority: int) -> int:
        pool = self.pools[executor]
        if pool is None:  # slots are all it takes
            return self.slots.size
        held = len(self._heaps[executor, True]) + len(self._heaps[executor, False])
        return pool.free(priority) - held

    def executor_of(self, job: Claimed) -> str:
        """Where the job runs; a job that was lost twice runs alone (D10)."""
        return "process" if job.lost >= 2 and self._isolates else self._executors[job.lane.task]

    def startable(self, priority: int = LEAST_URGENT) -> int:
        """How many jobs under a limit can start now, whichever they are: claimed for nothing, they would block others.

        Those of an executor that is not idle are not asked for.
        """
        free = self.slots.free(priority) - self._at_once - self.waiting
        pools = [self.spare(name, priority) for name in self._limited]
        return max(0, min([free, *(spare for spare in pools if spare > 0)]) - self.promised)

    def push(self, job: Claimed, *, aged: bool = False) -> None:
        """Hold a claimed job until it may start."""
        self._arrived += 1
        lane = job.lane
        rank = AGED if aged else AT_ONCE if job.lost or job.probe or lane.limited else lane.priority
        entry = (rank, self._arrived, job)
        if self._barred and stops(self._barred, lane):
            self._aside.append(entry)
        else:
            self._add(entry)

    def _add(self, entry: _Entry) -> None:
        job = entry[2]
        self.held += 1
        self._at_once += entry[0] <= AT_ONCE
        heappush(self._heaps[self.executor_of(job), job.lane.priority <= URGENT], entry)

    @property
    def aside(self) -> int:
        """How many jobs are held besides, under gates that are barred."""
        return len(self._aside)

    @property
    def waiting(self) -> int:
        """How many of those count as if they took slots: all, or what is too many, once others may overtake them."""
        return max(0, len(self._aside) - self.slots.size) if self.overtaken else len(self._aside)

    def bar(self, gate: str, *, at_once: bool) -> None:
        """Start nothing under this gate that is held.

        A job that was claimed for a free slot has it, though the loop has not come to it; `at_once` takes it away.
        """
        self._barred.add(gate)
        self._aside += self._take_out({gate}, AGED if at_once else AT_ONCE + 1)

    def lift(self, gates: Iterable[str]) -> list[Claimed]:
        """Start jobs under these gates again. A job that must start at once and finds no slot is taken out."""
        self._barred.difference_update(gates)
        aside, self._aside, back = sorted(self._aside), [], []
        for entry in aside:
            job = entry[2]
            if stops(self._barred, job.lane):
                self._aside.append(entry)
            elif entry[0] <= AT_ONCE and self._room(self.executor_of(job), entry) <= self._at_once:
                back.append(job)
            else:
                self._add(entry)
        return back

    def withdraw(self, gates: Set[str]) -> list[Claimed]:
        """Take out whatever is held under these gates."""
        taken = self._take_out(gates, AGED) + [entry for entry in self._aside if stops(gates, entry[2].lane)]
        self._aside = [entry for entry in self._aside if not stops(gates, entry[2].lane)]
        return [job for _, _, job in sorted(taken)]

    def _take_out(self, gates: Set[str], least: int) -> list[_Entry]:
        """Take out of the heaps what is held under these gates, with that rank or behind it."""
        taken: list[_Entry] = []
        for heap in self._heaps.values():
            kept: list[_Entry] = []
            for entry in heap:
                (taken if entry[0] >= least and stops(gates, entry[2].lane) else kept).append(entry)
            if len(kept) < len(heap):
                heap[:] = kept
                heapify(heap)
        if taken:
            self._count()
        return taken

    def pop(self) -> tuple[Claimed, str] | None:
        """The most urgent job that may start, with its executor; it takes its slots. None when none may."""
        if not self.held:
            return None
        heap, executor = self._plain, "async"
        if len(heap) != self.held or self.slots.busy >= self.slots.for_all:
            found = self._best()
            if found is None:
                return None
            executor = found[0]
            heap = self._heaps[found]
        rank, _, job = heappop(heap)
        self.held -= 1
        self.started += 1
        self.slots.take(job.lane.priority)
        pool = self.pools[executor]
        if pool is not None:
            pool.take(job.lane.priority)
        if rank <= AT_ONCE:
            self._at_once -= 1
            if not self._at_once:
                self.demand.slot_free()  # all that was claimed for free slots has started
        return job, executor

    def done(self, job: Claimed, executor: str) -> None:
        """A job that `pop` gave out no longer takes its slots."""
        self.slots.leave(job.lane.priority)
        pool = self.pools[executor]
        if pool is not None:
            pool.leave(job.lane.priority)

    def keys(self) -> set[tuple[bytes, int]]:
        """Id and token of every held job."""
        return {(job.id, job.token) for heap in (*self._heaps.values(), self._aside) for _, _, job in heap}

    def remove(self, id: bytes, token: int) -> bool:
        """Take out a held job; False when it is not here."""
        return self._forget(lambda job: (job.id, job.token) != (id, token)) > 0

    def drop(self, newest_token: int) -> None:
        """Forget what was claimed up to that token."""
        self._forget(lambda job: job.token > newest_token)

    def _forget(self, keep: Callable[[Claimed], bool]) -> int:
        before, self._aside = self.aside, [entry for entry in self._aside if keep(entry[2])]
        return before - self.aside + self._filter(keep)

    def _filter(self, keep: Callable[[Claimed], bool]) -> int:
        before = self.held
        for heap in self._heaps.values():
            heap[:] = [entry for entry in heap if keep(entry[2])]
            heapify(heap)
        self._count()
        return before - self.held

    def _best(self) -> tuple[str, bool] | None:
        best: tuple[str, bool] | None = None
        first: _Entry | None = None
        for key, heap in self._heaps.items():
            if heap and (first is None or heap[0] < first) and self._room(key[0], heap[0]):
                best, first = key, heap[0]
        return best

    def _room(self, executor: str, entry: _Entry) -> int:
        """How many jobs like this one could start now."""
        priority, pool = entry[2].lane.priority, self.pools[executor]
        free = self.slots.free(priority)
        return free if pool is None else min(free, pool.free(priority))

    def take_excess(self, ahead: int) -> list[Claimed]:
        """Take out the jobs that a saturated executor will not start soon: another worker may be free for them."""
        taken: list[Claimed] = []
        for name, pool in self.pools.items():
            if pool is None or not (self._heaps[name, True] or self._heaps[name, False]):
                continue
            kept: list[_Entry] = []
            starting = 0
            for entry in sorted(self._heaps[name, True] + self._heaps[name, False]):
                if starting < self._room(name, entry):
                    starting += 1
                elif len(kept) - starting == ahead:
                    taken.append(entry[2])
                    continue
                kept.append(entry)
            self._keep(name, kept)
        self._count()
        return taken

    def trim(self, keep: int) -> list[Claimed]:
        """Take out the least urgent held jobs, so that at most `keep` stay."""
        entries = sorted((entry, name) for (name, _), heap in self._heaps.items() for entry in heap)
        for name in self.pools:
            self._keep(name, [entry for entry, executor in entries[:keep] if executor == name])
        self._count()
        return [entry[2] for entry, _ in entries[keep:]]

    def clear(self) -> list[Claimed]:
        """Take out all that is held."""
        aside, self._aside = self._aside, []
        return self.trim(0) + [job for _, _, job in aside]

    def _keep(self, executor: str, entries: list[_Entry]) -> None:
        """Of an executor only these stay; they are sorted, so each part of them is a heap."""
        for urgent in (True, False):
            self._heaps[executor, urgent][:] = [
                entry for entry in entries if (entry[2].lane.priority <= URGENT) is urgent
            ]

    def _count(self) -> None:
        entries = [entry for heap in self._heaps.values() for entry in heap]
        self.held, self._at_once = len(entries), sum(rank <= AT_ONCE for rank, _, _ in entries)


def stops(gates: Set[str], lane: Lane) -> bool:
    """Whether one of these gates is on the way of that lane's jobs."""
    return not (gates.isdisjoint(lane.class_gates) and gates.isdisjoint(lane.lane_gates))
