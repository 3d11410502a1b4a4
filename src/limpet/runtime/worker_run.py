"""One run of a worker: puts its parts together, starts them, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from limpet.core.endings.failure import traceback_of
from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Pulse
from limpet.core.jobs.minute import Minute
from limpet.runtime.ageing import Ageing
from limpet.runtime.audit import Audit
from limpet.runtime.background import background
from limpet.runtime.barred_gates import BarredGates
from limpet.runtime.blocked_loop import LoopWatch
from limpet.runtime.companion import CompanionPart
from limpet.runtime.event_log_tailer import EventLogTailer
from limpet.runtime.executor import Executor
from limpet.runtime.fence import Fence
from limpet.runtime.fetcher import Bypass, Claiming, Fetcher, Listener
from limpet.runtime.handed_jobs import HandedJobs
from limpet.runtime.isolation import Isolation
from limpet.runtime.janitor import Janitor
from limpet.runtime.keeper import Keeper, StoreChannel
from limpet.runtime.learner import Learner
from limpet.runtime.local_queue import Demand, LocalQueue, Pace, Slots
from limpet.runtime.log import worker_log
from limpet.runtime.loop_monitor import LoopMonitor
from limpet.runtime.minute_counter import MinuteCounter
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.pipe import Pipe
from limpet.runtime.process_state import resident_bytes
from limpet.runtime.referral import Referral
from limpet.runtime.resources import Resources
from limpet.runtime.settings import (
    Ending,
    Recycled,
    Reserve,
    WorkerCutOff,
    WorkerFailed,
    WorkerPlan,
    WorkReport,
    urgent_executors,
)
from limpet.runtime.settler import Notebook, SettleQueue, Settler
from limpet.runtime.threads import Threads
from limpet.runtime.ticker import Ticker
from limpet.runtime.until_empty import UntilEmpty
from limpet.runtime.witness import Witness
from limpet.stores.asking import last_seq

FLUSH_S: Final = 5.0  # how long a stopping worker tries to settle what has ended: within most supervisors' patience
LEAVE_S: Final = 2.0
END_S: Final = 4.0  # after the grace a worker has ended, whatever the store does
LAST_S: Final = 1.5  # of it, for what comes after the last settlements
LEAST_S: Final = 0.5  # for a step of the end, however late it is
GIVEN_UP_S: Final = 15.0  # the longest grace where a handler that was given up keeps a slot: its job is taken back soon
TURN_S: Final = 1.0


class WorkerRun:
    """The parts of a worker, from the first beat to leaving.

    Each part is made after the parts it needs. What others need of the settler is its queue, which is made first.
    """

    def __init__(
        self, plan: WorkerPlan, report: WorkReport, witness: Witness, info: Callable[[], bytes], *, until_empty: bool
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._report = report
        self._witness = witness
        self._info = info
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = self._loop.create_future()
        self._forced = asyncio.Event()
        self._publishing: asyncio.Task[None] | None = None
        self._turning: asyncio.TimerHandle | None = None
        self.reconnects = 0
        self._was_away = False  # the store, and no beat was answered since
        self._end_at_s = math.inf  # by the loop's clock: known once it ends
        self.ordered = False  # the end was asked for by the owner of the worker
        self._store = PatientStore(plan.store, plan.rng, plan.settings.cut_off_ms, on_back=self._store_is_back)
        self.local_queue = _local_queue(plan)
        self._notebook = Notebook()
        features = plan.store.features
        self._settle_queue = SettleQueue(self._notebook, features.batch, by_lease=features.settles_by_lease)
        self._fence = Fence(plan.settings.ttl_ms, plan.roster)
        self._threads = Threads()
        self._learner = Learner(plan.store)
        self._join_running()
        self.counter = counter = self._executor.counter
        self._minute = MinuteCounter(counter, plan.clock_s)
        self._keeper = Keeper(plan, self._notebook, self.local_queue, self._fence, info, self.pulse, counter)
        self.watch = LoopWatch(self._loop, self._keeper.beat_now, all_code=plan.monitor is not None)
        self._join_claiming(until_empty=until_empty)
        self._janitor = Janitor(self._store, plan.settings, plan.rng, self._referral, self._check_memory)
        # A supervisor follows the event log once for all its children.
        self._tailer = self._follow_events() if plan.roster is None else None
        self._companions = [CompanionPart(each, plan.store) for each in plan.parts.companions]
        self._ticker = Ticker(
            self._store, plan.parts.schedules, plan.parts.tasks, plan.rng, look_ms=plan.settings.look_ms
        )

    def _follow_events(self) -> EventLogTailer:
        store = self._plan.store
        newest = partial(last_seq, store, "event")
        return EventLogTailer(partial(store.read, "event"), self._store, self._plan.settings.beat_ms, seen=newest)

    def _join_running(self) -> None:
        """The parts that run jobs."""
        plan = self._plan
        channel = StoreChannel(PatientStore(plan.store, plan.rng), self._notebook, self._learner)
        self._pace = Pace(plan.settings.ahead_ms, plan.clock_s)
        every = plan.settings.ageing
        self._ageing = Ageing(every, plan.rng) if every else None
        self._barred_gates = BarredGates(plan.parts.tasks, self.local_queue, self._ageing)
        patient = PatientStore(plan.store, plan.rng, plan.settings.cut_off_ms)
        self._referral = Referral(plan, patient, self._settle_queue.put)
        most_bytes = plan.settings.max_memory_bytes
        self._isolation = Isolation(plan.app_ref, channel, plan.rng, most_bytes, plan.log, plan.roster)
        self._executor = Executor(
            plan,
            self.local_queue,
            self._settle_queue,
            self._barred_gates,
            self._pace,
            channel,
            self._fence,
            self._isolation,
            self._referral,
            self._recycle,
        )

    def _join_claiming(self, *, until_empty: bool) -> None:
        """The parts that bring jobs and take their ends."""
        plan, report, local_queue, executor = self._plan, self._report, self.local_queue, self._executor
        empty = None
        if until_empty:
            end, linger_ms = lambda: self.end("empty"), plan.settings.linger_ms
            empty = UntilEmpty(local_queue, self._settle_queue, executor, report, linger_ms, end)
        self._settler = Settler(
            self._settle_queue,
            self._store,
            plan.session,
            report,
            self._barred_gates,
            executor.wake,
            roster=plan.roster,
            last_words=self._keeper.last_words,
            on_written=None if empty is None else empty.look,
        )
        self._audit = Audit(plan, executor, self._settle_queue, self._known)
        shared = Claiming(
            store=self._store,
            session=plan.session,
            serves=plan.serves,
            tasks=plan.parts.tasks,
            local_queue=local_queue,
            pace=self._pace,
            ageing=self._ageing,
            barred_gates=self._barred_gates,
            executor=executor,
            settle_queue=self._settle_queue,
            report=report,
            batch=plan.store.features.batch,
            takes_handed=plan.store.features.hands_off and not until_empty,
        )
        self._fetcher = Fetcher(shared, None if empty is None else empty.claimed_nothing)
        self._bypass = Bypass(shared)
        self._handed = HandedJobs(plan, self._keeper, self._settle_queue)
        self._listener = Listener(shared, plan.settings.beat_ms, self._keeper, self._audit, self._handed)

    async def live(self, stop: asyncio.Event | None) -> WorkReport:
        """Start the parts, wait for the end, stop them in order."""
        plan = self._plan
        stopping = None if stop is None else background(self._stop_when(stop), "limpet-stop")
        self._turn()
        try:
            if not await self._unless_over(plan.events.before()):
                return self._report
            async with contextlib.AsyncExitStack() as stack:
                # Left in the opposite order: jobs end before what they use is closed, the session last of all.
                stack.push_async_callback(self._leave)
                stack.push_async_callback(self._keeper.stop)
                if not await self._unless_over(self._keeper.start(self._part_failed)):
                    return self._report
                monitor = plan.monitor or LoopMonitor(None, self._settings.ttl_ms)
                stack.enter_context(monitor.looks_through(self.watch))
                resources = await stack.enter_async_context(Resources(plan.parts.hooks, plan.parts.resources))
                stack.callback(self._threads.close)
                stack.callback(self._fence.close)
                stack.push_async_callback(self._close_isolation)
                pipe = Pipe(plan.parts, resources, self._threads, plan.rng)
                stack.push_async_callback(self._wind_down)
                await self._settler.start(self._part_failed)
                await self._learner.start(self._part_failed)
                await self._executor.start(self._part_failed, pipe)
                if self._tailer is not None:
                    await self._tailer.start(self._part_failed)
                parts = (self._janitor, self._ticker, *self._companions, self._bypass, self._listener, self._fetcher)
                for part in parts:
                    await part.start(self._part_failed)
                worker_log(
                    logging.INFO, "worker started", session=plan.session, queues=",".join(plan.serves.queues or ())
                )
                plan.events.on_ready(self._info())
                self._report.ending = await self._over
        finally:
            if stopping is not None:
                stopping.cancel()
            if self._turning is not None:
                self._turning.cancel()
            if self._publishing is not None:
                self._publishing.cancel()
        worker_log(logging.INFO, "worker ended", session=plan.session, ending=self._report.ending)
        return self._report

    async def _unless_over(self, start: Coroutine[Any, Any, None]) -> bool:
        """Reach the store, however long that takes; False when the worker was stopped before."""
        starting = background(start, "limpet-start")
        waits: set[asyncio.Future[Any]] = {starting, self._over}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            return True
        starting.cancel()
        await asyncio.wait({starting})
        return False

    def end(self, how: Ending, *, ordered: bool = True) -> None:
        """Stop claiming and begin the graceful end. Jobs that an end without an order cuts off are lost."""
        self.ordered = self.ordered or ordered
        if not self._over.done():
            self._over.set_result(how)

    def force(self) -> None:
        """Cut the grace short."""
        self._forced.set()

    def pulse(self, pulse: Pulse, first: bool) -> None:
        """Do what the answer of a heartbeat asks for."""
        self._plan.events.on_beat()
        change = self._witness.heard(pulse)
        if change is not None:
            worker_log(logging.ERROR, change.text, session=self._plan.session, fix=change.fix)
            self._keeper.beat_now()  # so that `workers` and `doctor` show it
            if change.kind == "other":
                self._publish_again()
        if pulse.fresh and not first:
            running = len(self._executor.running)
            worker_log(logging.WARNING, "session was lost", session=self._plan.session, running=running)
            self._executor.drop(self._keeper.beaten_token)
            self.local_queue.demand.all.news()
        if pulse.fresh:
            self._fence.beaten(self._keeper.sent_ms)
        self._handed.heard(pulse)
        if self._was_away:
            self._was_away = False
            self.local_queue.demand.news()
        for id, token in pulse.cancels:
            self._executor.stop_job(id, token, "cancelled on request")
        self._audit.look()

    def _publish_again(self) -> None:
        """Another store answers: it does not know what the code of this worker declares."""
        if (publish := self._plan.events.on_other_store) is not None:
            self._publishing = background(self._publish(publish), "limpet-publish")

    async def _publish(self, publish: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._store.ask("publish", publish)
        except Exception as error:
            worker_log(logging.ERROR, "could not publish tasks again", error=error)  # the next start does it

    def _store_is_back(self) -> None:
        """The session may have run out while the store was away: it gets no job before it beats, and asks again then.

        Whether it had run out is not known: a beat whose answer was lost may have opened it again.
        """
        self._was_away = True
        self.reconnects += 1
        self._keeper.beat_now()

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.end("stopped")

    def _part_failed(self, name: str, error: BaseException) -> None:
        told = traceback_of(error)
        worker_log(logging.CRITICAL, "a part of the worker died", part=name, error=repr(error), traceback=told)
        if not self._over.done():
            if isinstance(error, WorkerCutOff):
                self._over.set_exception(error)
            else:
                failed = WorkerFailed(f"the worker's {name} died: {error!r}")
                failed.__cause__ = error
                self._over.set_exception(failed)

    def _recycle(self, why: Recycled) -> None:
        """End, so that a supervisor starts a new process: without one, a worker continues as long as it can."""
        if why == "max_jobs" or (why == "abandoned" and self._settings.recycles):
            self.end("recycled")  # a handler that was given up dies with this process, once the others are done
        elif why == "exhausted" and self._settings.recycles and not self._over.done():
            worker_log(logging.ERROR, "this process has no memory, files or threads left, replacing it")
            self.end("recycled")

    def _known(self) -> set[tuple[bytes, int]]:
        """Every job that this worker has: waiting to start, running, or with an end that is not written yet."""
        executor = self._executor
        started = executor.running.keys() | executor.given_up.keys()
        return started | self.local_queue.keys() | self._settle_queue.keys() | self._referral.held

    @property
    def last_minute(self) -> Minute:
        """How jobs ended lately."""
        return self._minute.said()

    @property
    def recovered(self) -> int:
        """Jobs that were taken back from silent workers."""
        return self._janitor.recovered

    @property
    def stuck(self) -> int:
        """Slots whose handler was given up and runs on, or whose process was killed and does not end."""
        return self._executor.left + self._isolation.stuck

    def _turn(self) -> None:
        """Tell the supervisor that this loop turns, whatever the store does."""
        if self._plan.roster is not None:
            self._plan.roster.turn()
            self._turning = asyncio.get_running_loop().call_later(TURN_S, self._turn)

    def _check_memory(self) -> None:
        limit = self._settings.max_memory_bytes
        if limit is not None and resident_bytes() > limit:
            worker_log(logging.WARNING, "memory limit reached", memory_bytes=resident_bytes(), limit_bytes=limit)
            self.end("recycled")

    # -- the end

    async def _wind_down(self) -> None:
        if self._plan.roster is not None:
            self._plan.roster.end_begins()
        for part in (self._ticker, *self._companions, self._fetcher, self._bypass, self._listener):
            await part.stop()
        self._settle_queue.release(self.local_queue.clear())
        grace_s = self._grace_s()
        self._end_at_s = self._loop.time() + grace_s + END_S
        await self._executor.drain(grace_s, self._forced, lambda: self.ordered)
        if self._forced.is_set():
            self._end_at_s = min(self._end_at_s, self._loop.time() + END_S)
        await self._handed.stop()
        await self._audit.stop()
        await self._executor.stop()
        if self._plan.roster is None:
            self._executor.settle_given_up()
        await self._learner.stop()
        await self._janitor.stop()
        left = await self._settler.finish(self._left_s(FLUSH_S, after_s=LAST_S))
        if self._tailer is not None:
            await self._tailer.stop()
        if left:
            worker_log(logging.ERROR, "could not write the ends of jobs", count=left)
            self._plan.events.on_unwritten(*self._settle_queue.left())

    def _grace_s(self) -> float:
        """Where a part has died, jobs get what is left before the lease of others could have noticed."""
        settings = self._settings
        broken = self._over.cancelled() or (self._over.done() and self._over.exception() is not None)
        grace_s = min(settings.grace_ms, settings.ttl_ms // 2 if broken else settings.grace_ms) / 1000
        return min(grace_s, GIVEN_UP_S) if self._executor.given_up else grace_s

    async def _close_isolation(self) -> None:
        await self._isolation.close(self._left_s(END_S, after_s=LAST_S))

    def _left_s(self, most_s: float, *, after_s: float = 0.0) -> float:
        """How long a step of the end may take, when the steps after it take `after_s`."""
        return max(LEAST_S, min(most_s, self._end_at_s - after_s - self._loop.time()))

    async def _leave(self) -> None:
        if self._executor.given_up:
            return  # the supervisor settles for them and leaves, once this process is gone
        if self._settle_queue.unsettled:
            return  # leaving hands back every held job, also one that has ended; a lease that runs out is a loss
        self._plan.events.on_leaving()
        try:
            async with asyncio.timeout(self._left_s(LEAVE_S)):
                await self._plan.store.leave(self._plan.session)
        except (StoreError, TimeoutError) as error:
            worker_log(logging.WARNING, "could not close the session", error=error)  # it ends by its ttl instead


def _local_queue(plan: WorkerPlan) -> LocalQueue:
    settings, tasks = plan.settings, plan.parts.tasks
    reserve = Reserve.of(settings, urgent_executors(tasks.values()))
    return LocalQueue(
        tasks,
        Slots(settings.concurrency, reserve.slots),
        Slots(settings.threads, reserve.threads),
        Slots(settings.job_processes),
        isolates=plan.app_ref is not None,
        demand=Demand(),
    )
