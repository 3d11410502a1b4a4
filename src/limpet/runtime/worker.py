"""Runs jobs inside one process and one event loop: the worker as its owner sees it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from limpet.core.endings.transition import Transition
from limpet.core.endings.verdict import Classifier
from limpet.core.jobs import witness
from limpet.core.jobs.lease import Pulse, Serves
from limpet.core.schedules.declared import FIELD
from limpet.core.schedules.schedule import Schedule
from limpet.core.tasks.task import TaskSpec
from limpet.core.version import VERSION
from limpet.runtime.background import background
from limpet.runtime.life import Before, Life, Plan
from limpet.runtime.memory import resident_bytes
from limpet.runtime.roster import Roster
from limpet.runtime.session import session_name
from limpet.runtime.settings import AppRef, Middleware, Parts, Resource, WorkerFailed, WorkerSettings, WorkReport
from limpet.runtime.settler import Settler
from limpet.runtime.witness import Witness
from limpet.stores.base import Store

LATELY_S: Final = 60.0  # what workers say of their speed is about so long


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
        self._witness = Witness(clock_s)
        self._life: Life | None = None
        self._ran: deque[tuple[float, int]] = deque()  # when a beat was made, and how many jobs had ended by then
        self._stopped = False
        self.before: Before | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None
        self.on_given_up: Callable[[Transition], None] = lambda transition: None  # its handler runs on
        self.on_unwritten: Callable[[Settler], None] = lambda settler: None
        self.on_other_store: Callable[[], Awaitable[object]] | None = None  # e.g. publishes what code declares

    async def run(self, stop: asyncio.Event | None = None, until_empty: bool = False) -> WorkReport:
        """Work until stopped, cancelled or (if asked) empty; then finish within the grace and hand back the rest.

        Raises WorkerFailed when a part of the worker died, WorkerCutOff when the store stayed away too long.
        """
        if self._life is not None:
            raise WorkerFailed("this worker has run already", fix="make a new Worker for every run")
        self._life = life = Life(self._plan(until_empty))
        if self._stopped:
            life.end("stopped")  # a supervisor may change its mind while the app is loading
        if self.before is not None:
            life.before = self.before
        life.on_ready, life.on_beat, life.on_leaving = self.on_ready, self._beaten, self.on_leaving
        life.on_given_up, life.on_unwritten = self.on_given_up, self.on_unwritten
        life.on_other_store = self.on_other_store
        task = background(life.live(stop), "limpet-worker")
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # The first cancellation asks for a graceful end, a second one forces it.
                if cancelled:
                    life.force()
                cancelled = True
                life.end("stopped", ordered=self._roster is None)  # a supervisor sends word instead
        if cancelled and not task.exception():
            raise asyncio.CancelledError
        return task.result()

    def stop(self, *, ordered: bool = True) -> None:
        """Stop claiming, finish within the grace, hand back the rest. From the worker's own loop, even before `run`.

        With `ordered=False` it is an end that nobody asked for: what does not finish is lost, not handed back.
        """
        self._stopped = True
        if self._life is not None:
            self._life.end("stopped", ordered=ordered)

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
            witness=self._witness,
            app_ref=self._app_ref,
            roster=self._roster,
            until_empty=until_empty,
        )

    def _lately(self) -> float:
        """Jobs ended a second, over the last minute of beats."""
        now_s, ran = self._clock_s(), self.report.run
        self._ran.append((now_s, ran))
        while self._ran[0][0] < now_s - LATELY_S:
            self._ran.popleft()
        since_s, before = self._ran[0]
        return 0.0 if now_s <= since_s else round((ran - before) / (now_s - since_s), 3)

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
            "places": {} if life is None else life.rack.facts(),
            "per_second": self._lately(),
            "stuck": 0 if life is None else life.stuck,
            "memory_bytes": resident_bytes(),
            **self._silence(),
            FIELD: {schedule.name: schedule.fingerprint for schedule in self._parts.schedules},
            witness.FIELD: self._witness.report(),
        }
        return msgspec.json.encode(about)

    def _silence(self) -> dict[str, int]:
        """Said by the heartbeat's thread when the loop has not turned for a lease."""
        silent_ms = 0 if self._roster is None else self._roster.silent_ms()
        return {"silent_ms": silent_ms} if silent_ms > self.settings.ttl_ms else {}
