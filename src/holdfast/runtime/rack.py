"""Remembers the jobs this worker holds but has not started, most urgent first, and who may start now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from holdfast.core.job import LEAST_URGENT, URGENT
from holdfast.core.lease import Claimed
from holdfast.core.task import TaskSpec

AT_ONCE: Final = -1  # jobs that were claimed for a free slot start before any that were held

_Entry = tuple[int, int, Claimed]  # how urgent, order of arrival


class Places:
    """A number of places, of which `reserved` are for urgent jobs alone (D16)."""

    __slots__ = ("busy", "for_all", "size")

    def __init__(self, size: int, reserved: float) -> None:
        self.size = size
        # Of a single place nothing can be reserved, or ordinary jobs would never run.
        self.for_all = size - (min(size - 1, max(1, int(size * reserved))) if reserved > 0 else 0)
        self.busy = 0

    def free(self, priority: int = LEAST_URGENT) -> int:
        """How many jobs of that priority could start now."""
        return max(0, (self.size if priority <= URGENT else self.for_all) - self.busy)


class Rack:
    """Three heaps, one per executor, over shared slots; a saturated executor never stops the others."""

    def __init__(
        self, tasks: Mapping[str, TaskSpec], slots: Places, threads: Places, processes: Places, *, isolates: bool
    ) -> None:
        self.slots = slots
        self.pools: dict[str, Places | None] = {"async": None, "thread": threads, "process": processes}
        self._executors = {name: spec.executor for name, spec in tasks.items()}
        limited = {spec.executor for spec in tasks.values() if spec.ceilings or spec.breaker is not None}
        self._limited = [places for name, places in self.pools.items() if places is not None and name in limited]
        self._heaps: dict[str, list[_Entry]] = {name: [] for name in self.pools}
        self._in_loop = self._heaps["async"]
        self._arrived = 0
        self.held = 0
        self._at_once = 0  # of those, how many were claimed for a free slot
        self.newest_token = 0  # of the last claim that was answered
        self.promised = 0  # slots that a claim under way has asked for
        self.started = 0
        self.on_started: Callable[[], None] = lambda: None  # all that was claimed for free slots has started
        self._isolates = isolates  # suspects can be run alone in a process

    def executor_of(self, job: Claimed) -> str:
        """Where the job runs; a job that was lost twice runs alone (D10)."""
        return "process" if job.lost >= 2 and self._isolates else self._executors[job.lane.task]

    def startable(self, priority: int = LEAST_URGENT, *, of_saturated: bool = False) -> int:
        """How many jobs under a limit can start now, whichever they are: claimed for nothing, they would block others.

        `of_saturated`: they may be of executors that have no place at all.
        """
        pools = [places.free(priority) for places in self._limited]
        free = min([self.slots.free(priority), *(free for free in pools if free or of_saturated)])
        return max(0, free - self.promised - self._at_once)

    def push(self, job: Claimed) -> None:
        """Hold a claimed job until it may start."""
        self._arrived += 1
        self.held += 1
        lane = job.lane
        rank = AT_ONCE if job.lost or job.probe or lane.limited else lane.priority
        self._at_once += rank == AT_ONCE
        heappush(self._heaps[self.executor_of(job)], (rank, self._arrived, job))

    def pop(self) -> tuple[Claimed, str] | None:
        """The most urgent job that may start, with its executor; it takes its places. None when none may."""
        if not self.held:
            return None
        heap = self._in_loop
        slots = self.slots
        if len(heap) == self.held:
            if slots.busy >= (slots.size if heap[0][2].lane.priority <= URGENT else slots.for_all):
                return None
            executor = "async"
        else:
            found = self._best()
            if found is None:
                return None
            executor = found
            heap = self._heaps[executor]
            places = self.pools[executor]
            if places is not None:
                places.busy += 1
        rank, _, job = heappop(heap)
        self.held -= 1
        self.started += 1
        slots.busy += 1
        if rank == AT_ONCE:
            self._at_once -= 1
            if not self._at_once:
                self.on_started()
        return job, executor

    def done(self, executor: str) -> None:
        """A job that `pop` gave out no longer takes its places."""
        self.slots.busy -= 1
        places = self.pools[executor]
        if places is not None:
            places.busy -= 1

    def keys(self) -> set[tuple[bytes, int]]:
        """Id and token of every held job."""
        return {(job.id, job.token) for heap in self._heaps.values() for _, _, job in heap}

    def remove(self, id: bytes, token: int) -> bool:
        """Take out a held job; False when it is not here."""
        return self._filter(lambda job: (job.id, job.token) != (id, token)) > 0

    def drop(self, newest_token: int) -> None:
        """Forget what was claimed up to that token."""
        self._filter(lambda job: job.token > newest_token)

    def _filter(self, keep: Callable[[Claimed], bool]) -> int:
        before = self.held
        for heap in self._heaps.values():
            heap[:] = [entry for entry in heap if keep(entry[2])]
            heapify(heap)
        self._count()
        return before - self.held

    def _best(self) -> str | None:
        best: str | None = None
        first: _Entry | None = None
        for name, heap in self._heaps.items():
            if not heap:
                continue
            priority = heap[0][2].lane.priority
            places = self.pools[name]
            if not self.slots.free(priority) or (places is not None and not places.free(priority)):
                continue
            if first is None or heap[0] < first:
                best, first = name, heap[0]
        return best

    def surplus(self, ahead: int) -> list[Claimed]:
        """Take out what a saturated executor will not start soon: another worker may be free for it."""
        taken: list[Claimed] = []
        for name, places in self.pools.items():
            heap = self._heaps[name]
            if places is None or not heap:
                continue
            first = heap[0][2].lane.priority
            keep = min(places.free(first), self.slots.free(first)) + ahead
            if len(heap) > keep:
                heap.sort()
                taken += [entry[2] for entry in heap[keep:]]
                del heap[keep:]
        self._count()
        return taken

    def shed(self, keep: int) -> list[Claimed]:
        """Take out the least urgent held jobs, so that at most `keep` stay."""
        entries = sorted((entry, name) for name, heap in self._heaps.items() for entry in heap)
        for name, heap in self._heaps.items():
            heap[:] = [entry for entry, kind in entries[:keep] if kind == name]  # sorted, so still a heap
        self._count()
        return [entry[2] for entry, _ in entries[keep:]]

    def _count(self) -> None:
        entries = [entry for heap in self._heaps.values() for entry in heap]
        self.held, self._at_once = len(entries), sum(rank == AT_ONCE for rank, _, _ in entries)
