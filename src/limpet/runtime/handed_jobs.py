"""Remembers which of the jobs that were handed to this session have come with a wake-up, and hands back the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from limpet.core.errors import StoreError
from limpet.core.jobs.job import LEAST_URGENT, URGENT
from limpet.core.jobs.lease import Claimed, Handed, Pulse, Takes
from limpet.runtime.background import background
from limpet.runtime.keeper import Keeper
from limpet.runtime.local_queue import LocalQueue
from limpet.runtime.log import worker_log
from limpet.runtime.roster import kept_ms
from limpet.runtime.settings import WorkerPlan
from limpet.runtime.settler import SettleQueue


def takes(local_queue: LocalQueue) -> Takes:
    """How many jobs could start at once beside those that run or are held, of any executor that is idle."""

    def places(priority: int) -> int:
        spare = [local_queue.spare(name, priority) for name in local_queue.executors]
        return max(0, min([_free(local_queue, priority), *(each for each in spare if each > 0)]))

    return Takes(places(LEAST_URGENT), places(URGENT))


def has_place(local_queue: LocalQueue, job: Claimed) -> bool:
    """Whether a job that was not asked for could start at once."""
    priority = job.lane.priority
    return _free(local_queue, priority) > 0 and local_queue.idle(local_queue.executor_of(job), priority)


def _free(local_queue: LocalQueue, priority: int) -> int:
    return local_queue.slots.free(priority) - local_queue.promised - local_queue.held - local_queue.waiting


class HandedJobs:
    """Jobs that are handed to a session are numbered, and a beat says the number of the last one.

    What did not come, and is still held, was lost on its way and is handed back. A message that comes after that is
    late: the job may run elsewhere.
    """

    def __init__(self, plan: WorkerPlan, keeper: Keeper, settle_queue: SettleQueue) -> None:
        self._store = plan.store
        self._session = plan.session
        self._kept_ms = plan.settings.ttl_ms * 2 // 3  # so long after a beat the lease is certain
        self._late_at_s = 0.0  # by the loop's clock: then it may be lost
        self._keeper = keeper
        self._settle_queue = settle_queue
        self._up_to = 0  # what has this number or a smaller one has come, or is not waited for any more
        self._beyond: set[int] = set()  # what has come of those above
        self._looking: asyncio.Task[None] | None = None
        self._over = False

    def arrived(self, jobs: Sequence[Handed]) -> list[Handed]:
        """Those of a wake-up that may start: not such as come late, and none once this worker ends."""
        if asyncio.get_running_loop().time() > self._late_at_s:
            return []  # the lease may be lost: the next beat says what is still held here
        fresh = [handed for handed in jobs if not self._has_come(handed.number)]
        for handed in fresh:
            if handed.number > self._up_to + 1:
                self._keeper.beat_now()  # one before it is missing, or comes another way
            self._beyond.add(handed.number)
            self._skip_to(self._up_to)
        if self._over:
            self._settle_queue.release([handed.job for handed in fresh])
            return []
        return fresh

    def heard(self, pulse: Pulse) -> None:
        """A beat has said how many jobs were handed to this session."""
        left_ms = self._keeper.sent_ms + self._kept_ms - kept_ms()  # the answer may have waited for the loop
        self._late_at_s = asyncio.get_running_loop().time() + left_ms / 1000
        if pulse.fresh:
            self._skip_to(pulse.handed)
        elif pulse.handed > self._up_to and (self._looking is None or self._looking.done()):
            self._looking = background(self._find(pulse.handed), "limpet-missing")

    def refuse(self) -> None:
        """This worker ends: what still comes goes back."""
        self._over = True

    async def stop(self) -> None:
        """Look for no more that are missing: the session ends, and with it all that it holds."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _find(self, last: int) -> None:
        """Hand back what this session holds of those up to `last` and has not got."""
        try:
            held = await self._store.held(self._session)
        except StoreError:
            return  # the heartbeat has the same trouble and says so; the next one asks again
        missing = [one for one in held if 0 < one.handed <= last and not self._has_come(one.handed)]
        self._skip_to(last)
        if missing:
            worker_log(logging.WARNING, "jobs that were handed to this worker did not arrive", count=len(missing))
            self._settle_queue.release(missing)

    def _has_come(self, number: int) -> bool:
        return number <= self._up_to or number in self._beyond

    def _skip_to(self, number: int) -> None:
        self._up_to = max(self._up_to, number)
        while self._up_to + 1 in self._beyond:
            self._up_to += 1
        self._beyond = {each for each in self._beyond if each > self._up_to}
