"""Runs jobs inside one process and one event loop: the worker as its owner sees it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from limpet.core.lease import Pulse, Serves
from limpet.core.schedules.declared import FIELD
from limpet.core.schedules.schedule import Schedule
from limpet.core.task import TaskSpec
from limpet.core.verdict import Classifier
from limpet.core.version import VERSION
from limpet.runtime.life import Life, Plan
from limpet.runtime.memory import resident_bytes
from limpet.runtime.roster import Roster
from limpet.runtime.session import session_name
from limpet.runtime.settings import AppRef, Middleware, Parts, Resource, WorkerFailed, WorkerSettings, WorkReport
from limpet.stores.base import Store


class Worker:
    """A worker inside one process and one event loop. Another loop or process makes its own.

    >>> report = await Worker(store, tasks, WorkerSettings(queues=("email",))).run(stop)
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskSpec],
        settings: WorkerSettings | None = None,
        *,
        resources: Sequence[Resource] = (),
        hooks: Sequence[Resource] = (),
        middleware: Sequence[Middleware] = (),
        classifiers: Sequence[Classifier] = (),
        schedules: Sequence[Schedule] = (),
        app_ref: AppRef | str | None = None,
        session: str | None = None,
        roster: Roster | None = None,
        rng: random.Random | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or WorkerSettings()
        self.session = session or session_name()
        self.report = WorkReport()
        self._store = store
        self._parts = Parts(
            tasks=dict(tasks),
            resources=resources,
            hooks=hooks,
            middleware=middleware,
            classifiers=classifiers,
            schedules=schedules,
        )
        self._app_ref = AppRef(app_ref) if isinstance(app_ref, str) else app_ref
        self._roster = roster
        self._rng = rng or random.Random()
        self._clock_s = clock_s
        queues = self.settings.queues or tuple(sorted({spec.queue for spec in tasks.values()}))
        self.serves = Serves(queues, tuple(sorted(tasks)), tuple(sorted(self.settings.capabilities)))
        self._life: Life | None = None
        self._stopped = False
        self.on_ready: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None

    async def run(self, stop: asyncio.Event | None = None, until_empty: bool = False) -> WorkReport:
        """Work until stopped, cancelled or (if asked) empty; then finish within the grace and hand back the rest.

        Raises WorkerFailed when a part of the worker died, WorkerCutOff when the store stayed away too long.
        """
        if self._life is not None:
            raise WorkerFailed("this worker has run already", fix="make a new Worker for every run")
        self._life = life = Life(self._plan(until_empty))
        if self._stopped:
            life.end("stopped")  # a supervisor may change its mind while the app is loading
        life.on_ready, life.on_beat, life.on_leaving = self.on_ready, self._beaten, self.on_leaving
        task = asyncio.create_task(life.live(stop), name="limpet-worker")
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # The first cancellation asks for a graceful end, a second one forces it.
                if cancelled:
                    life.force()
                cancelled = True
                life.end("stopped")
        if cancelled and not task.exception():
            raise asyncio.CancelledError
        return task.result()

    def stop(self) -> None:
        """Stop claiming, finish within the grace, hand back the rest. From the worker's own loop, even before `run`."""
        self._stopped = True
        if self._life is not None:
            self._life.end("stopped")

    def force(self) -> None:
        """Do not wait for running jobs any longer: hand them back."""
        self.stop()
        if self._life is not None:
            self._life.force()

    def lost_session(self) -> None:
        """Someone else found that the session had expired: nothing that runs here is ours any more."""
        if self._life is not None:
            self._life.pulse(Pulse(fresh=True), first=False)

    def _beaten(self) -> None:
        self.on_beat()

    def _plan(self, until_empty: bool) -> Plan:
        return Plan(
            store=self._store,
            session=self.session,
            serves=self.serves,
            settings=self.settings,
            parts=self._parts,
            report=self.report,
            rng=self._rng,
            clock_s=self._clock_s,
            info=self.info,
            app_ref=self._app_ref,
            roster=self._roster,
            until_empty=until_empty,
        )

    def info(self) -> bytes:
        """What operators see of this worker."""
        life = self._life
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "concurrency": self.settings.concurrency,
            "running": 0 if life is None else life.rack.slots.busy,
            "held": 0 if life is None else life.rack.held + life.rack.aside,
            "memory_bytes": resident_bytes(),
            FIELD: {schedule.name: schedule.fingerprint for schedule in self._parts.schedules},
        }
        return msgspec.json.encode(about)
