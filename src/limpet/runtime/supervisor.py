"""Keeps a worker's child processes running: runs no user code, beats for them, settles for the dead, restarts them.

Exit codes: 0 stopped as asked · 1 the children cannot be kept running · 2 the store is not shared between processes ·
5 cut off from the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Beat
from limpet.core.jobs.view import Entry
from limpet.runtime.child_messages import CUT_OFF, FAILED, RECYCLED, STOPPED, Begin, Halt, SessionLost
from limpet.runtime.child_process import ChildProcess
from limpet.runtime.child_recovery import ChildRecovery, end_groups
from limpet.runtime.child_watch import ChildWatch
from limpet.runtime.event_log_tailer import EventLogTailer
from limpet.runtime.health import Health, health_of
from limpet.runtime.log import worker_log
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.metrics_book import MetricsBook
from limpet.runtime.patient_store import Patience, PatientStore
from limpet.runtime.roster import kept_ms
from limpet.runtime.settings import WorkerCutOff, WorkerSettings, session_name
from limpet.runtime.signals import obeyed
from limpet.runtime.spare import Spare
from limpet.runtime.worker_run import END_S, FLUSH_S
from limpet.stores.open import open_store

NOT_SHARED: Final = 2
MARGIN_S: Final = 0.5  # beyond the end of its own, before a stopping child is killed
LEAST_S: Final = 1.0  # for what a child leaves to be settled, however late it is
HEALTHY_S: Final = 1.0  # a child that worked for so long is started again without delay
EARLY_S: Final = 10.0  # a child that wants to be started again so soon, and has done nothing, will want it for ever
MOST_IDLE_FALLS: Final = 5  # of children that had started no job, in a row
HEARD_S: Final = 1.0  # how long the last words of a dead child may take: a process it left behind may hold its socket
LINES_FOR_UNSETTLED: Final = 8_192  # far more than a worker claims ahead: ended jobs keep their line until settled
FIRST_BACKOFF_S: Final = 0.1
LONGEST_BACKOFF_S: Final = 5.0


class SupervisorSettings(Struct, frozen=True, kw_only=True):
    """What the supervisor itself needs to know; `worker` is for the children."""

    app_ref: str
    path: tuple[str, ...] = ()
    processes: int = 1
    url: str | None = None
    namespace: str | None = None
    silent_ms: int = 300_000
    log: LogSettings = LogSettings()
    worker: WorkerSettings = WorkerSettings()


class Supervisor:
    """One supervisor and its children (D7)."""

    def __init__(
        self, settings: SupervisorSettings, on_ready: Callable[[ChildProcess], None] = lambda child: None
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._rng = random.Random()
        self._children: dict[int, ChildProcess] = {}
        self._spare: Spare | None = None  # the store, for what no child can ask for it; known from the first one
        self._tailer: EventLogTailer | None = None
        self._stopping = asyncio.Event()
        self._forced = False
        self._end_at_s = math.inf  # known once it stops
        self._code = STOPPED
        self._recovery = ChildRecovery()
        self.book: MetricsBook | None = None  # where what children have counted is summed, if somewhere
        self._look_s = min(1.0, settings.worker.ttl_ms / 8000)

    async def run(self) -> int:
        """Keep the children running until stopped; the exit code."""
        beating = asyncio.create_task(self._beat(), name="beat")
        beating.add_done_callback(self._part_failed)
        try:
            async with asyncio.TaskGroup() as group:
                for place in range(self._settings.processes):
                    group.create_task(self._tend(place))
        finally:
            beating.cancel()
            await asyncio.wait({beating})
            if self._tailer is not None:
                await self._tailer.stop()
            if self._spare is not None:
                await self._spare.close()
        return self._code

    def stop(self, *, force: bool = False) -> None:
        """A graceful end; with `force` what runs is handed back at once."""
        self._forced = self._forced or force
        if not self._stopping.is_set():
            self._end_at_s = time.monotonic() + self._settings.worker.grace_ms / 1000 + END_S
        self._stopping.set()
        for child in self._children.values():
            child.send(Halt(force=self._forced))

    def obeys_signals(self) -> AbstractContextManager[None]:
        """SIGTERM and SIGINT stop; a second one forces. What comes after the block changes nothing any more."""
        return obeyed(lambda: self.stop(force=self._stopping.is_set()))

    @property
    def stopping(self) -> asyncio.Event:
        """Set by the first signal."""
        return self._stopping

    def health(self) -> Health:
        """Whether the worker lives, and whether it claims jobs or could."""
        children = [*self._children.values()]
        return health_of(children, self._settings.worker.ttl_ms, stopping=self._stopping.is_set())

    def pids(self) -> list[int]:
        """The children that run now."""
        return [child.pid for child in self._children.values()]

    # -- one place for a child

    async def _tend(self, place: int) -> None:
        idle_falls = quick_falls = 0
        while not self._stopping.is_set():
            child = await ChildProcess.spawn(self._begin())
            self._children[place] = child
            if self.book is not None:
                child.on_counted = partial(self.book.take, child.session)
            code = await self._until_ended(child)
            del self._children[place]
            if self.book is not None:
                self.book.gone(child.session)
            meant, worked, ready_for_s = child.roster.said, child.roster.worked, child.ready_for_s()
            if meant == CUT_OFF == code:
                self._cut_off()  # first: what follows must not wait for a store that is away
            await self._recover_or_leave(child, code)
            child.close()
            if self._stopping.is_set():
                continue
            if self.book is not None:
                self.book.restarts += 1
            if meant == RECYCLED == code and (worked or ready_for_s > EARLY_S):
                idle_falls = 0
                continue
            # A child that falls with its jobs is started again for ever; one that falls without any is not.
            idle_falls = 0 if worked else idle_falls + 1
            quick_falls = quick_falls + 1 if ready_for_s < HEALTHY_S else 0
            worker_log(logging.ERROR, "child ended", pid=child.pid, code=code, falls_without_a_job=idle_falls)
            if idle_falls >= MOST_IDLE_FALLS:
                worker_log(logging.CRITICAL, "children cannot be kept running", falls_without_a_job=idle_falls)
                self._code = FAILED
                self.stop()
                return
            await self._pause(quick_falls)

    def _begin(self) -> Begin:
        settings = self._settings
        worker = replace(settings.worker, recycles=True)
        return Begin(
            app_ref=settings.app_ref,
            path=list(settings.path),
            settings=worker,
            session=session_name(),
            lines=worker.concurrency + LINES_FOR_UNSETTLED,
            url=settings.url,
            namespace=settings.namespace,
            log=settings.log,
            metrics=self.book is not None,
        )

    async def _until_ended(self, child: ChildProcess) -> int:
        """The child's exit code. One that is beyond help, or does not stop in time, is killed."""
        worker = self._settings.worker
        end_s = worker.grace_ms / 1000 + END_S + MARGIN_S
        watch = ChildWatch(child, worker, self._settings.silent_ms, round(end_s * 1000))
        ended = asyncio.create_task(child.ended())
        greeting = asyncio.create_task(self._greet(child), name="greet")
        greeting.add_done_callback(self._part_failed)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not ended.done() and not stopping.done():
                await asyncio.wait({ended, stopping}, timeout=self._look_s, return_when=asyncio.FIRST_COMPLETED)
                match None if ended.done() else await watch.look():
                    case "kill":
                        child.kill()
                    case "dismiss":
                        child.send(Halt(ordered=False))
            if not ended.done():
                child.send(Halt(force=self._forced))
                if child.ready is None:
                    child.terminate()  # it may load the app for long, and hear nothing while it does
                done, _ = await asyncio.wait({ended}, timeout=end_s)
                if not done:
                    worker_log(logging.ERROR, "child did not stop in time, killing it", pid=child.pid)
                    child.kill()
            code = await ended
            await asyncio.wait({greeting}, timeout=HEARD_S)
            return code
        finally:
            greeting.cancel()
            stopping.cancel()

    async def _greet(self, child: ChildProcess) -> None:
        ready = await child.heard_ready()
        if ready is None:
            return
        if self._spare is None:
            self._spare = Spare(partial(open_store, ready.url, ready.namespace))
        async with self._spare.lent() as store:
            shared = store.features.shared
        if not shared:
            worker_log(
                logging.CRITICAL,
                "this store cannot be shared between processes",
                url=ready.url,
                fix="use a file or a server",
            )
            self._code = NOT_SHARED
            self.stop()
            return
        if self._tailer is None:
            # From before its first child claimed anything: a job that was waiting may have been news at once.
            look_ms = self._settings.worker.beat_ms
            self._tailer = EventLogTailer(self._read_events, Patience(self._rng), look_ms, seen=ready.heard)
            await self._tailer.start(self._part_fell)
        worker_log(logging.INFO, "child ready", pid=child.pid, session=child.session)
        self._on_ready(child)
        await child.follow()

    async def _pause(self, failures: int) -> None:
        longest_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * (1 << failures))
        try:
            async with asyncio.timeout(longest_s * self._rng.uniform(0.5, 1.0)):
                await self._stopping.wait()
        except TimeoutError:
            return

    # -- for the children, towards the store

    async def _beat(self) -> None:
        """Beat for a child whose own beat is late: its interpreter may be held by a long call, and it is alive."""
        worker = self._settings.worker
        while True:
            await asyncio.sleep(worker.beat_ms / 2000)
            spare = self._spare
            if spare is None:
                continue  # no child has been greeted
            for child in list(self._children.values()):
                ready = child.ready
                if ready is None or child.leaving or child.roster.beaten_ms() < worker.beat_ms * 1.5:
                    continue
                sent_ms = kept_ms()
                try:
                    info = child.info(worker.ttl_ms)
                    async with spare.lent() as store:
                        pulse = await store.beat(Beat(child.session, worker.ttl_ms, ready.serves, info))
                    child.kept_at_s = time.monotonic()
                except StoreError as error:
                    if not error.retryable:
                        raise
                    continue  # the child itself gives up when the store stays away too long
                if not pulse.fresh:
                    child.roster.beat_for(sent_ms)
                elif not child.leaving:
                    child.send(SessionLost())

    async def _read_events(self, after: int, most: int) -> Sequence[Entry]:
        """The event log, as a child reads it: it has a connection, and this process needs none while all is well."""
        for child in list(self._children.values()):
            able = child.ready is not None and not child.leaving
            if able and child.roster.silent_ms() < self._settings.worker.ttl_ms:
                seen = await child.look(after, most)
                if seen is not None:
                    return seen
        if self._spare is None:
            return []
        async with self._spare.lent() as store:
            return await store.read("event", after, most)

    def _part_failed(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._part_fell(task.get_name(), error)

    def _part_fell(self, name: str, error: BaseException) -> None:
        """A part of the supervisor died: say so, and end rather than live on half deaf."""
        worker_log(logging.CRITICAL, "a part of the supervisor died", part=name, error=repr(error))
        self._code = FAILED
        self.stop()

    def _cut_off(self) -> None:
        """The store has been away for too long, for a child or for the supervisor itself: end, and say so."""
        if not self._stopping.is_set():
            self._code = CUT_OFF
            self.stop()

    async def _recover_or_leave(self, child: ChildProcess, code: int) -> None:
        """Recover; but a supervisor that is stopping does not wait for a store that is away."""
        recovering = asyncio.create_task(self._recover(child, code))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({recovering, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        left_s = max(LEAST_S, min(FLUSH_S, self._end_at_s - time.monotonic()))
        done, _ = await asyncio.wait({recovering}, timeout=left_s)
        if done:
            try:
                recovering.result()
            except WorkerCutOff as error:
                worker_log(logging.CRITICAL, "cut off from the store", error=error)
                self._cut_off()
            except StoreError as error:
                self._part_fell("recovery", error)
        else:
            recovering.cancel()  # the leases run out by themselves
            worker_log(logging.ERROR, "could not hand on the jobs of a child that ended", pid=child.pid)

    async def _recover(self, child: ChildProcess, code: int) -> None:
        """Settle at once for a child that died, before its lease runs out."""
        await end_groups(child)
        if self._spare is None or child.ready is None or child.left:
            return
        async with self._spare.lent() as store:
            patient = PatientStore(store, self._rng, self._settings.worker.cut_off_ms)
            await self._recovery.settle_for(child, code, patient)


async def supervise(settings: SupervisorSettings) -> int:
    """Run a supervisor with signal handlers, as `limpet worker` does; the exit code."""
    supervisor = Supervisor(settings)
    with supervisor.obeys_signals():
        return await supervisor.run()
