"""Runs jobs: puts the parts of a worker together, keeps them running, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast.core.classify import Classifier
from holdfast.core.errors import StoreError
from holdfast.core.lease import Claim, Pulse, Serves, Wake
from holdfast.core.task import TaskSpec
from holdfast.core.transition import Release
from holdfast.core.version import VERSION
from holdfast.runtime.crew import Crew
from holdfast.runtime.fetcher import Bypass, Claiming, Fetcher
from holdfast.runtime.isolation import Isolation
from holdfast.runtime.janitor import Janitor
from holdfast.runtime.keeper import Keeper, Notebook, StoreDesk
from holdfast.runtime.listener import Listener
from holdfast.runtime.log import worker_log
from holdfast.runtime.memory import resident_bytes
from holdfast.runtime.pace import Pace
from holdfast.runtime.patience import Patience
from holdfast.runtime.pipe import Pipe
from holdfast.runtime.rack import Places, Rack
from holdfast.runtime.resources import Resources
from holdfast.runtime.roster import Roster
from holdfast.runtime.settings import (
    Ending,
    Middleware,
    Parts,
    Resource,
    WorkerCutOff,
    WorkerFailed,
    WorkerSettings,
    WorkReport,
)
from holdfast.runtime.settler import Settler
from holdfast.runtime.threads import Threads
from holdfast.stores.base import Store

FLUSH_S = 5.0  # how long a stopping worker tries to settle what has ended: within most supervisors' patience
LEAVE_S = 2.0


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
        app_ref: str | None = None,
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
            tasks=dict(tasks), resources=resources, hooks=hooks, middleware=middleware, classifiers=classifiers
        )
        self._app_ref = app_ref
        self._roster = roster
        self._rng = rng or random.Random()
        self._clock_s = clock_s
        queues = self.settings.queues or tuple(sorted({spec.queue for spec in tasks.values()}))
        self.serves = Serves(queues, tuple(sorted(tasks)), tuple(sorted(self.settings.capabilities)))
        self._life: Life | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None

    async def run(self, stop: asyncio.Event | None = None, until_empty: bool = False) -> WorkReport:
        """Work until stopped, cancelled or (if asked) empty; then finish within the grace and hand back the rest.

        Raises WorkerFailed when a part of the worker died, WorkerCutOff when the store stayed away too long.
        """
        if self._life is not None:
            raise WorkerFailed("this worker has run already", fix="make a new Worker for every run")
        self._life = life = Life(self, until_empty=until_empty)
        task = asyncio.create_task(life.live(stop), name="holdfast-worker")
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
        """Stop claiming, finish within the grace, hand back the rest. From the worker's own loop."""
        if self._life is not None:
            self._life.end("stopped")

    def force(self) -> None:
        """Do not wait for running jobs any longer: hand them back."""
        if self._life is not None:
            self._life.end("stopped")
            self._life.force()

    def lost_session(self) -> None:
        """Someone else found that the session had expired: nothing that runs here is ours any more."""
        if self._life is not None:
            self._life.pulse(Pulse(fresh=True), first=False)

    def info(self) -> bytes:
        """What operators see of this worker."""
        life = self._life
        about = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": VERSION,
            "concurrency": self.settings.concurrency,
            "running": 0 if life is None else life.rack.slots.busy,
            "held": 0 if life is None else life.rack.held,
            "memory_bytes": resident_bytes(),
        }
        return msgspec.json.encode(about)


class Life:
    """One run of a worker: its parts, from the first beat to leaving."""

    def __init__(self, worker: Worker, *, until_empty: bool) -> None:
        settings, store, session = worker.settings, worker._store, worker.session
        self._worker = worker
        self._settings = settings
        self._store = store
        self._until_empty = until_empty
        self._rng = worker._rng
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = loop.create_future()
        self._forced = asyncio.Event()
        self._next_in_ms: int | None = None
        self._asked_after = -1  # jobs claimed when the store was last asked whether it is really empty
        tasks = worker._parts.tasks
        self.rack = Rack(
            tasks,
            Places(settings.concurrency, settings.reserved),
            Places(settings.threads, settings.reserved),
            Places(settings.job_processes, settings.reserved),
            isolates=worker._app_ref is not None,
        )
        notebook = Notebook()
        self._desk = StoreDesk(store, notebook)
        patience = Patience(self._rng)
        self._pace = Pace(settings.ahead_ms, worker._clock_s)
        self._threads = Threads()
        self._keeper = Keeper(store, session, worker.serves, settings, notebook, worker.info)
        self._settler = Settler(store, session, patience, worker.report)
        self._crew = Crew(
            tasks, self.rack, self._settler, self._pace, self._desk, worker._roster, settings.cleanup_ms / 1000
        )
        self._isolation = Isolation(worker._app_ref, self._desk, self._rng, settings.max_memory_bytes)
        shared = Claiming(
            store=store,
            session=session,
            serves=worker.serves,
            tasks=tasks,
            rack=self.rack,
            pace=self._pace,
            settler=self._settler,
            patience=patience,
            report=worker.report,
            crew=self._crew,
        )
        self._fetcher = Fetcher(shared)
        self._bypass = Bypass(shared)
        self._listener = Listener(store, session, settings.beat_ms, patience, self._woken)
        self._janitor = Janitor(store, settings, patience, self._rng)
        self._keeper.on_pulse = self.pulse
        if worker._roster is not None:
            self._keeper.on_beat = worker._roster.beat
        self._crew.on_low = self._low
        self._crew.on_abandoned = self._abandoned
        self._fetcher.on_empty = self._empty
        self._settler.on_settled = self._settled
        self._janitor.on_sweep = self._swept

    async def live(self, stop: asyncio.Event | None) -> WorkReport:
        """Start the parts, wait for the end, stop them in order."""
        worker = self._worker
        stopping = None if stop is None else asyncio.create_task(self._stop_when(stop))
        try:
            async with contextlib.AsyncExitStack() as stack:
                # Left in the opposite order: jobs end before what they use is closed, the session last of all.
                stack.push_async_callback(self._leave)
                await self._keeper.start(self._fell)
                stack.push_async_callback(self._keeper.stop)
                resources = await stack.enter_async_context(Resources(worker._parts.hooks, worker._parts.resources))
                stack.callback(self._threads.close)
                stack.push_async_callback(self._isolation.close)
                pipe = Pipe(worker._parts, resources, self._threads, self._rng)
                stack.push_async_callback(self._wind_down)
                await self._settler.start(self._fell)
                await self._crew.start(self._fell, pipe, self._isolation)
                for part in (self._janitor, self._bypass, self._listener, self._fetcher):
                    await part.start(self._fell)
                worker_log(
                    logging.INFO, "worker started", session=worker.session, queues=",".join(worker.serves.queues or ())
                )
                worker.on_ready()
                worker.report.ending = await self._over
        finally:
            if stopping is not None:
                stopping.cancel()
        worker_log(logging.INFO, "worker ended", session=worker.session, ending=worker.report.ending)
        return worker.report

    def end(self, how: Ending) -> None:
        """Stop claiming and begin the graceful end."""
        if not self._over.done():
            self._over.set_result(how)

    def force(self) -> None:
        """Cut the grace short."""
        self._forced.set()

    def pulse(self, pulse: Pulse, first: bool) -> None:
        """What a heartbeat answered."""
        self._worker.on_beat()
        if pulse.fresh and not first:
            worker_log(
                logging.WARNING, "session was lost", session=self._worker.session, running=len(self._crew.running)
            )
            self._crew.drop_all()
            self._fetcher.news()
        for id, token in pulse.cancels:
            self._crew.stop_job(id, token, "cancelled on request")

    # -- what the parts tell each other

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.end("stopped")

    def _fell(self, name: str, error: BaseException) -> None:
        worker_log(logging.CRITICAL, "a part of the worker died", part=name, error=repr(error))
        if not self._over.done():
            if isinstance(error, WorkerCutOff):
                self._over.set_exception(error)
            else:
                failed = WorkerFailed(f"the worker's {name} died: {error!r}")
                failed.__cause__ = error
                self._over.set_exception(failed)

    def _woken(self, wake: Wake) -> None:
        if wake.cancel:
            self._keeper.beat_now()
        if wake.urgent:
            self._bypass.call()
        if wake.work or not (wake.urgent or wake.cancel):
            self._fetcher.news()  # an elapsed wait asks once too, in case a wake-up was lost
            if not wake.work:
                self._bypass.call()

    def _low(self) -> None:
        self._fetcher.poke()
        if self._bypass.hungry:
            self._bypass.call()
        limit = self._settings.max_jobs
        if limit is not None and self._crew.ended >= limit:
            self.end("recycled")

    def _abandoned(self) -> None:
        if self._settings.recycles:
            self.end("recycled")  # the handler that was given up dies with this process, once the others are done

    def _empty(self, claim: Claim) -> None:
        self._next_in_ms = None if claim.next_at_ms is None else claim.next_at_ms - claim.now_ms
        self._settled()

    def _settled(self) -> None:
        """With until_empty: end once nothing is claimed, running or unsettled, and nothing comes soon."""
        if not self._until_empty or not self._fetcher.dry:
            return
        if self.rack.slots.busy or self.rack.held or self._settler.unsettled:
            return
        if self._next_in_ms is not None and self._next_in_ms <= self._settings.linger_ms:
            return  # the fetcher's alarm asks again when that is due
        if self._asked_after == self._worker.report.claimed:
            self.end("empty")
        else:
            # What just settled may have released dependents: the answer counts only if asked after that.
            self._asked_after = self._worker.report.claimed
            self._fetcher.news()

    def _swept(self) -> None:
        if self._worker._roster is not None:
            self._worker._roster.turn()
        limit = self._settings.max_memory_bytes
        if limit is not None and resident_bytes() > limit:
            worker_log(logging.WARNING, "memory ceiling reached", memory_bytes=resident_bytes(), limit_bytes=limit)
            self.end("recycled")

    # -- the end

    async def _wind_down(self) -> None:
        for part in (self._fetcher, self._bypass, self._listener):
            await part.stop()
        for job in self.rack.shed(0):
            self._settler.put(Release(job.id, job.token))
        await self._crew.drain(self._settings.grace_ms / 1000, self._forced)
        await self._crew.stop()
        await self._janitor.stop()
        left = await self._settler.finish(FLUSH_S)
        if left:
            worker_log(logging.ERROR, "settlements left unwritten", count=left)

    async def _leave(self) -> None:
        self._worker.on_leaving()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._store.leave(self._worker.session)
        except (StoreError, TimeoutError) as error:
            worker_log(logging.WARNING, "could not leave", error=error)  # the session ends by its ttl instead


def session_name() -> str:
    """A name that no other worker has, and that tells people where it runs."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
