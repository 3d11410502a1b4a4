"""Runs jobs inside one process and one event loop: the worker as its owner sees it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.endings.refusal import code_of
from limpet.core.jobs import blocked_loop, minute, witness
from limpet.core.jobs.lease import Pulse
from limpet.core.schedules.declared import FIELD
from limpet.core.version import VERSION
from limpet.runtime.background import background
from limpet.runtime.minute_counter import AttemptCounter
from limpet.runtime.process_state import resident_bytes
from limpet.runtime.settings import WorkerFailed, WorkerPlan, WorkReport
from limpet.runtime.witness import Witness
from limpet.runtime.worker_run import WorkerRun

LATELY_S: Final = 60.0  # what workers say of their speed is about so long


class Measured(Struct, frozen=True):
    """How a worker is, and what it has counted beside its jobs since it began."""

    gauges: list[float] = []  # in the order of metrics_book.GAUGES
    counts: dict[str, int] = {}
    blocks: dict[str, int] = {}


class Worker:
    """A worker inside one process and one event loop. Another loop or process makes its own.

    >>> report = await Worker(WorkerPlan(store=store, parts=Parts(tasks=tasks))).run(stop)
    """

    def __init__(self, plan: WorkerPlan) -> None:
        self.report = WorkReport()
        self._plan = plan
        self._witness = Witness(plan.clock_s)
        self._run: WorkerRun | None = None
        self._ended: deque[tuple[float, int]] = deque()  # when a beat was made, and how many jobs had ended by then
        self._stopped = False

    @property
    def session(self) -> str:
        """The name under which the store knows this worker."""
        return self._plan.session

    async def run(self, stop: asyncio.Event | None = None, until_empty: bool = False) -> WorkReport:
        """Work until stopped, cancelled or (if asked) empty; then finish within the grace and hand back the rest.

        Raises WorkerFailed when a part of the worker died, WorkerCutOff when the store stayed away too long.
        """
        if self._run is not None:
            raise WorkerFailed("this worker has run already", fix="make a new Worker for every run")
        self._run = run = WorkerRun(self._plan, self.report, self._witness, self.info, until_empty=until_empty)
        if self._stopped:
            run.end("stopped")  # a supervisor may change its mind while the app is loading
        task = background(run.live(stop), "limpet-worker")
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                # The first cancellation asks for a graceful end, a second one forces it.
                if cancelled:
                    run.force()
                cancelled = True
                run.end("stopped", ordered=self._plan.roster is None)  # a supervisor sends word instead
        if cancelled and not task.exception():
            raise asyncio.CancelledError
        return task.result()

    def stop(self, *, ordered: bool = True) -> None:
        """Stop claiming, finish within the grace, hand back the rest. From the worker's own loop, even before `run`.

        With `ordered=False` its owner has not asked for the end: a job that does not finish is lost, not handed back.
        """
        self._stopped = True
        if self._run is not None:
            self._run.end("stopped", ordered=ordered)

    def force(self) -> None:
        """Do not wait for running jobs any longer: hand them back."""
        self.stop()
        if self._run is not None:
            self._run.force()

    def lost_session(self) -> None:
        """Someone else found that the session had expired: nothing that runs here is ours any more."""
        if self._run is not None:
            self._run.pulse(Pulse(fresh=True), first=False)

    def _lately(self) -> float:
        """Jobs ended a second, over the last minute of beats."""
        now_s, ended = self._plan.clock_s(), self.report.run
        self._ended.append((now_s, ended))
        while self._ended[0][0] < now_s - LATELY_S:
            self._ended.popleft()
        since_s, before = self._ended[0]
        return 0.0 if now_s <= since_s else round((ended - before) / (now_s - since_s), 3)

    def info(self) -> bytes:
        """What operators see of this worker."""
        run, signatures = self._run, self._plan.parts.signatures()
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "concurrency": self._plan.settings.concurrency,
            "grace_ms": self._plan.settings.grace_ms,
            "running": 0 if run is None else run.local_queue.slots.busy,
            "held": 0 if run is None else run.local_queue.held + run.local_queue.aside,
            "places": {} if run is None else run.local_queue.facts(),
            "per_second": self._lately(),
            "stuck": 0 if run is None else run.stuck,
            "memory_bytes": resident_bytes(),
            **self._silence(),
            **self._blocked(),
            FIELD: {schedule.name: schedule.fingerprint for schedule in self._plan.parts.schedules},
            witness.FIELD: self._witness.report(),
            **({} if run is None else {minute.FIELD: run.last_minute}),
            "code_version": self._code_version() or code_of(signatures).removeprefix("code:"),
            "signatures": signatures,
        }
        return msgspec.json.encode(about)

    @property
    def counter(self) -> AttemptCounter | None:
        """How its attempts ended; None before it runs."""
        return None if self._run is None else self._run.counter

    def measured(self) -> Measured | None:
        """What a supervisor exposes of it; None before it runs."""
        run = self._run
        if run is None:
            return None
        queue, loop = run.local_queue, run.watch.report()
        slots, held = queue.slots, queue.held + queue.aside
        return Measured(
            gauges=[float(each) for each in (slots.size, slots.busy, held, run.stuck, resident_bytes())],
            counts={
                "limpet_settlements_refused": self.report.stale,
                "limpet_leases_recovered": run.recovered,
                "limpet_store_reconnects": run.reconnects,
            },
            blocks={} if loop is None else {task: blocks.count for task, blocks in loop.tasks.items()},
        )

    def _blocked(self) -> dict[str, object]:
        """Handlers that have blocked the loop, or do so now."""
        report = None if self._run is None else self._run.watch.report()
        return {} if report is None else {blocked_loop.FIELD: report}

    def _code_version(self) -> str:
        return self._plan.settings.code_version or self._plan.parts.code_version

    def _silence(self) -> dict[str, int]:
        """Said by the heartbeat's thread when the loop has not turned for a lease."""
        roster = self._plan.roster
        silent_ms = 0 if roster is None else roster.silent_ms()
        return {"silent_ms": silent_ms} if silent_ms > self._plan.settings.ttl_ms else {}
