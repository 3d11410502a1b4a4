"""Finds out where this worker and the store disagree: jobs taken away from it, and jobs it does not know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from limpet.core.endings.transition import Release
from limpet.core.errors import StoreError
from limpet.core.jobs.ids import id_text
from limpet.runtime.background import background
from limpet.runtime.executor import Executor
from limpet.runtime.log import job_log, worker_log
from limpet.runtime.settings import WorkerPlan
from limpet.runtime.settler import SettleQueue

SELDOM = 6  # beats between two looks while nothing runs here

Key = tuple[bytes, int]  # job id and token


class Audit:
    """Compares what runs here with what the store says this session holds.

    A job that the store no longer counts as held is stopped: a forced cancel shows only there. A job that it counts as
    held and that this worker does not know, on two looks a beat apart, is handed back: a store that came back in an
    older state (a failover, a log without its last second) would otherwise leave it with this worker for ever.
    """

    def __init__(
        self,
        plan: WorkerPlan,
        executor: Executor,
        settle_queue: SettleQueue,
        known: Callable[[], set[Key]],
    ) -> None:
        self._store = plan.store
        self._session = plan.session
        self._every_s = plan.settings.beat_ms / 1000
        self._executor = executor
        self._settle_queue = settle_queue
        self._known = known
        self._unknown: set[Key] = set()  # at the last look
        self._loop = asyncio.get_running_loop()
        self._asked_at_s = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def look(self, *, now: bool = False) -> None:
        """Look if the last time is long ago, or at once: someone has cancelled a job of this worker."""
        pause_s = self._every_s if self._executor.running or self._unknown else SELDOM * self._every_s
        if not now and self._loop.time() - self._asked_at_s < pause_s:
            return
        if self._task is not None:
            self._again = self._again or now
        else:
            self._asked_at_s = self._loop.time()
            self._task = background(self._compare(), "limpet-audit")
            self._task.add_done_callback(self._looked)

    async def stop(self) -> None:
        """End, and return when ended."""
        self._again = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._again:
            self._again = False
            self.look(now=True)

    async def _compare(self) -> None:
        # Those that start while the store is asked are newer than its answer, so they are left out.
        running, before = list(self._executor.running.values()), self._known()
        try:
            held = {(one.id, one.token) for one in await self._store.held(self._session)}
        except StoreError:
            return  # the heartbeat has the same trouble and says so; the next look comes with the next beat
        for attempt in running:
            if (attempt.job.id, attempt.job.token) not in held and not attempt.over:
                job_log(logging.WARNING, "job was taken away", attempt.job)
                attempt.stop("lost", "the job was taken away")
        self._hand_back(held - before - self._known())

    def _hand_back(self, unknown: set[Key]) -> None:
        for id, token in unknown & self._unknown:
            worker_log(logging.WARNING, "released a job this worker does not know", job_id=id_text(id))
            self._settle_queue.put(Release(id, token, started=True))
        self._unknown = unknown - self._unknown
