"""Finds out which running jobs were taken away from this worker, and stops them: nothing they do counts any more."""

from __future__ import annotations

import asyncio
import logging

from holdfast.core.errors import StoreError
from holdfast.runtime.crew import Crew
from holdfast.runtime.log import job_log
from holdfast.stores.base import Store


class Audit:
    """Compares what runs here with what the store says this session holds. A forced cancel shows only there."""

    def __init__(self, store: Store, session: str, crew: Crew, every_s: float) -> None:
        self._store = store
        self._session = session
        self._crew = crew
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._asked_at_s = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def look(self, *, now: bool = False) -> None:
        """Look if the last time is long ago, or at once: someone has cancelled a job of this worker."""
        if not now and self._loop.time() - self._asked_at_s < self._every_s:
            return
        if self._task is not None:
            self._again = self._again or now
        elif self._crew.running:
            self._asked_at_s = self._loop.time()
            self._task = asyncio.create_task(self._compare(), name="holdfast-audit")
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
        running = list(self._crew.running.values())
        try:
            held = {(one.id, one.token) for one in await self._store.held(self._session)}
        except StoreError:
            return  # the heartbeat has the same trouble and says so; the next look comes with the next beat
        for attempt in running:
            if (attempt.job.id, attempt.job.token) not in held and not attempt.over:
                job_log(logging.WARNING, "job was taken away", attempt.job)
                attempt.stop("lost", "the job was taken away")
