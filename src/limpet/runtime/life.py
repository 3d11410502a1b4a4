"""One run of a worker: puts its parts together, lets them tell each other what they need, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from msgspec import Struct

from limpet.core.errors import StoreError
from limpet.core.lease import Claim, Pulse, Serves, Wake
from limpet.core.transition import Release, Transition
from limpet.runtime.ageing import Ageing
from limpet.runtime.audit import Audit
from limpet.runtime.background import background
from limpet.runtime.claiming import Claiming
from limpet.runtime.crew import Crew
from limpet.runtime.crier import Crier
from limpet.runtime.fence import Fence
from limpet.runtime.fetcher import Bypass, Fetcher
from limpet.runtime.isolation import Isolation
from limpet.runtime.janitor import Janitor
from limpet.runtime.keeper import Keeper, Notebook, StoreDesk
from limpet.runtime.learner import Learner
from limpet.runtime.listener import Listener
from limpet.runtime.log import worker_log
from limpet.runtime.memory import resident_bytes
from limpet.runtime.pace import Pace
from limpet.runtime.patience import Patience
from limpet.runtime.pipe import Pipe
from limpet.runtime.rack import Places, Rack
from limpet.runtime.resources import Resources
from limpet.runtime.roster import Roster
from limpet.runtime.settings import (
    AppRef,
    Ending,
    Parts,
    Reserve,
    WorkerCutOff,
    WorkerFailed,
    WorkerSettings,
    WorkReport,
    urgent_executors,
)
from limpet.runtime.settler import Settler
from limpet.runtime.stopping import Stopping
from limpet.runtime.threads import Threads
from limpet.runtime.ticker import Ticker
from limpet.runtime.witness import Witness
from limpet.stores.base import Store

FLUSH_S: Final = 5.0  # how long a stopping worker tries to settle what has ended: within most supervisors' patience
LEAVE_S: Final = 2.0
END_S: Final = 4.0  # after the grace a worker has ended, whatever the store does
LAST_S: Final = 1.5  # of it, for what comes after the last settlements
LEAST_S: Final = 0.5  # for a step of the end, however late it is
GIVEN_UP_S: Final = 15.0  # the longest grace where a handler that was given up keeps a slot: its job is taken back soon
TURN_S: Final = 1.0


Before = Callable[[], Coroutine[Any, Any, None]]  # what the store is told or asked before the first beat


async def _nothing() -> None: ...


class Plan(Struct, frozen=True, kw_only=True):
    """What a run is made of: given once, by the worker."""

    store: Store
    session: str
    serves: Serves
    settings: WorkerSettings
    parts: Parts
    report: WorkReport
    rng: random.Random
    clock_s: Callable[[], float]
    info: Callable[[], bytes]
    witness: Witness
    app_ref: AppRef | None = None
    roster: Roster | None = None
    until_empty: bool = False


class Life:
    """The parts of a worker, from the first beat to leaving."""

    def __init__(self, plan: Plan) -> None:
        settings, store, session, rng = plan.settings, plan.store, plan.session, plan.rng
        self._plan = plan
        self._settings = settings
        self._store = store
        self.before: Before = _nothing
        self.on_ready: Callable[[], None] = lambda: None
        self.on_beat: Callable[[], None] = lambda: None
        self.on_leaving: Callable[[], None] = lambda: None
        self.on_given_up: Callable[[Transition], None] = lambda transition: None
        self.on_unwritten: Callable[[Settler], None] = lambda settler: None  # who else could write it is told here
        self.ordered = False  # somebody who may has asked for the end
        self.on_other_store: Callable[[], Awaitable[object]] | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = self._loop.create_future()
        self._forced = asyncio.Event()
        self._was_away = False  # the store, and no beat was answered since
        self._end_at_s = math.inf  # by the loop's clock: known once it ends
        self._turning: asyncio.TimerHandle | None = None
        self._next_in_ms: int | None = None
        self._asked_after = -1  # jobs claimed when the store was last asked whether it is really empty
        tasks = plan.parts.tasks
        reserve = Reserve.of(settings, urgent_executors(tasks.values()))
        self.rack = Rack(
            tasks,
            Places(settings.concurrency, reserve.slots),
            Places(settings.threads, reserve.threads),
            Places(settings.job_processes),
            isolates=plan.app_ref is not None,
        )
        notebook = Notebook()
        self._patience = patience = Patience(rng, settings.cut_off_ms)
        self._learner = Learner(store)
        self._desk = StoreDesk(store, notebook, self._learner, Patience(rng))
        self._pace = Pace(settings.ahead_ms, plan.clock_s)
        self._threads = Threads()
        self._keeper = Keeper(store, session, plan.serves, settings, notebook, plan.info)
        self._settler = Settler(store, session, patience, plan.report, plan.roster, notebook)
        self._fence = Fence(settings.ttl_ms, plan.roster)
        self._crew = Crew(
            tasks,
            self.rack,
            self._settler,
            self._pace,
            self._desk,
            plan.roster,
            self._fence,
            settings.cleanup_ms / 1000,
        )
        stopping = Stopping(tasks, self.rack)
        self._audit = Audit(store, session, self._crew, settings.beat_ms / 1000, self._known, self._settler)
        self._isolation = Isolation(plan.app_ref, self._desk, rng, settings.max_memory_bytes, plan.roster)
        shared = Claiming(
            store=store,
            session=session,
            serves=plan.serves,
            tasks=tasks,
            rack=self.rack,
            pace=self._pace,
            settler=self._settler,
            patience=patience,
            report=plan.report,
            crew=self._crew,
            ageing=Ageing(settings.ageing, rng),
            stopping=stopping,
        )
        self._fetcher = Fetcher(shared)
        self._bypass = Bypass(shared)
        self._listener = Listener(store, session, settings.beat_ms, patience, self._woken)
        self._janitor = Janitor(store, settings, patience, rng)
        # A supervisor tells the events once for all its children.
        self._crier = Crier(store, patience, settings.beat_ms) if plan.roster is None else None
        self._ticker = Ticker(store, plan.parts.schedules, tasks, patience, rng, look_ms=settings.look_ms)
        patience.on_back = self._back
        self._keeper.on_pulse = self.pulse
        self._keeper.newest_token = lambda: self.rack.newest_token
        self._keeper.on_beat = self._fence.beaten
        self._crew.on_lesson = stopping.ended
        self._settler.on_write = stopping.sent
        self._settler.on_answer = stopping.answered
        stopping.fits = self._settler.fits
        stopping.give_back = shared.give_back
        stopping.on_slow = self._places
        stopping.on_lifted = self._lifted
        self._crew.on_low = self._low
        self._crew.on_abandoned = self._abandoned
        self._crew.on_given_up = self._given_up
        self._crew.on_exhausted = self._exhausted
        self._fetcher.on_empty = self._empty
        self._fetcher.on_urgent = self._bypass.call
        self.rack.on_started = self._places
        self._bypass.on_answer = self._fetcher.poke
        self._settler.on_settled = self._settled
        self._settler.before = self._keeper.last_words
        self._janitor.on_sweep = self._swept

    async def live(self, stop: asyncio.Event | None) -> WorkReport:
        """Start the parts, wait for the end, stop them in order."""
        plan = self._plan
        stopping = None if stop is None else background(self._stop_when(stop), "limpet-stop")
        self._turn()
        try:
            if not await self._unless_over(self.before()):
                return plan.report
            async with contextlib.AsyncExitStack() as stack:
                # Left in the opposite order: jobs end before what they use is closed, the session last of all.
                stack.push_async_callback(self._leave)
                stack.push_async_callback(self._keeper.stop)
                if not await self._unless_over(self._keeper.start(self._fell)):
                    return plan.report
                resources = await stack.enter_async_context(Resources(plan.parts.hooks, plan.parts.resources))
                stack.callback(self._threads.close)
                stack.callback(self._fence.close)
                stack.push_async_callback(self._close_cells)
                pipe = Pipe(plan.parts, resources, self._threads, plan.rng)
                stack.push_async_callback(self._wind_down)
                await self._settler.start(self._fell)
                await self._learner.start(self._fell)
                await self._crew.start(self._fell, pipe, self._isolation)
                if self._crier is not None:
                    await self._crier.start(self._fell)
                for part in (self._janitor, self._ticker, self._bypass, self._listener, self._fetcher):
                    await part.start(self._fell)
                worker_log(
                    logging.INFO, "worker started", session=plan.session, queues=",".join(plan.serves.queues or ())
                )
                self.on_ready()
                plan.report.ending = await self._over
        finally:
            if stopping is not None:
                stopping.cancel()
            if self._turning is not None:
                self._turning.cancel()
            if self._publishing is not None:
                self._publishing.cancel()
        worker_log(logging.INFO, "worker ended", session=plan.session, ending=plan.report.ending)
        return plan.report

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
        """Stop claiming and begin the graceful end. One that nobody ordered counts as a loss for what it cuts off."""
        self.ordered = self.ordered or ordered
        if not self._over.done():
            self._over.set_result(how)

    def force(self) -> None:
        """Cut the grace short."""
        self._forced.set()

    def pulse(self, pulse: Pulse, first: bool) -> None:
        """What a heartbeat answered."""
        self.on_beat()
        change = self._plan.witness.heard(pulse)
        if change is not None:
            worker_log(logging.ERROR, change.text, session=self._plan.session, fix=change.fix)
            self._keeper.beat_now()  # what was seen is told to those who ask for this worker
            if change.kind == "other":
                self._publish_again()
        if pulse.fresh and not first:
            worker_log(logging.WARNING, "session was lost", session=self._plan.session, running=len(self._crew.running))
            self._crew.drop(self._keeper.beaten_token)
            self._fetcher.news()
        if pulse.fresh:
            self._fence.beaten(self._keeper.sent_ms)
        if self._was_away:
            self._was_away = False
            self._fetcher.news()
            self._bypass.call()
        for id, token in pulse.cancels:
            self._crew.stop_job(id, token, "cancelled on request")
        self._audit.look()

    def _publish_again(self) -> None:
        """Another store answers: it does not know what the code of this worker declares."""
        if self.on_other_store is not None:
            self._publishing = background(self._publish(self.on_other_store), "limpet-publish")

    async def _publish(self, publish: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._patience.ask("publish", publish)
        except Exception as error:
            worker_log(logging.ERROR, "could not publish tasks again", error=error)  # the next start does it

    # -- what the parts tell each other

    def _back(self) -> None:
        """The session may have run out while the store was away: it gets no job before it beats, and asks again then.

        Whether it had run out is not known: a beat whose answer was lost may have opened it again.
        """
        self._was_away = True
        self._keeper.beat_now()

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
            self._audit.look(now=True)
        if wake.urgent:
            self._bypass.call()
        if wake.work or not (wake.urgent or wake.cancel):
            self._fetcher.news()  # an elapsed wait asks once too, in case a wake-up was lost
            if not wake.work:
                self._bypass.call()

    def _places(self) -> None:
        self._fetcher.poke()
        self._bypass.poke()

    def _lifted(self, narrowed: bool) -> None:
        """Jobs that lay aside may start, or their places are free."""
        self._crew.wake()
        if narrowed:  # an empty answer said nothing of all that could be asked for
            self._fetcher.news()
            self._bypass.call()
        self._places()

    def _low(self) -> None:
        self._places()
        limit = self._settings.max_jobs
        if limit is not None and self._crew.ended >= limit:
            self.end("recycled")

    def _abandoned(self) -> None:
        if self._settings.recycles:
            self.end("recycled")  # the handler that was given up dies with this process, once the others are done

    def _given_up(self, transition: Transition) -> None:
        self.on_given_up(transition)

    def _exhausted(self) -> None:
        if self._settings.recycles and not self._over.done():
            worker_log(logging.ERROR, "this process has no memory, files or threads left, replacing it")
            self.end("recycled")

    def _empty(self, claim: Claim) -> None:
        self._next_in_ms = None if claim.next_at_ms is None else claim.next_at_ms - claim.now_ms
        self._settled()

    def _settled(self) -> None:
        """With until_empty: end once nothing is claimed, running or unsettled, and nothing comes soon."""
        if not self._plan.until_empty or not self._fetcher.dry:
            return
        if self.rack.slots.busy or self.rack.held or self.rack.aside or self._settler.unsettled or self._crew.given_up:
            return
        if self._next_in_ms is not None and self._next_in_ms <= self._settings.linger_ms:
            return  # the fetcher's alarm asks again when that is due
        if self._asked_after == self._plan.report.claimed:
            self.end("empty")
        else:
            # What just settled may have released dependents: the answer counts only if asked after that.
            self._asked_after = self._plan.report.claimed
            self._fetcher.news()

    def _known(self) -> set[tuple[bytes, int]]:
        """Every job that this worker has: waiting to start, running, or with an end that is not written yet."""
        return self._crew.running.keys() | self._crew.given_up.keys() | self.rack.keys() | self._settler.keys()

    @property
    def stuck(self) -> int:
        """Places whose handler was given up and runs on, or whose process was killed and does not end."""
        return self._crew.left + self._isolation.stuck

    def _turn(self) -> None:
        """Tell the supervisor that this loop turns, whatever the store does."""
        if self._plan.roster is not None:
            self._plan.roster.turn()
            self._turning = asyncio.get_running_loop().call_later(TURN_S, self._turn)

    def _swept(self) -> None:
        limit = self._settings.max_memory_bytes
        if limit is not None and resident_bytes() > limit:
            worker_log(logging.WARNING, "memory ceiling reached", memory_bytes=resident_bytes(), limit_bytes=limit)
            self.end("recycled")

    # -- the end

    async def _wind_down(self) -> None:
        if self._plan.roster is not None:
            self._plan.roster.end_begins()
        for part in (self._ticker, self._fetcher, self._bypass, self._listener):
            await part.stop()
        for job in self.rack.clear():
            self._settler.put(Release(job.id, job.token))
        grace_s = self._grace_s()
        self._end_at_s = self._loop.time() + grace_s + END_S
        await self._crew.drain(grace_s, self._forced, lambda: self.ordered)
        if self._forced.is_set():
            self._end_at_s = min(self._end_at_s, self._loop.time() + END_S)
        await self._audit.stop()
        await self._crew.stop()
        if self._plan.roster is None:
            self._crew.settle_given_up()
        await self._learner.stop()
        await self._janitor.stop()
        left = await self._settler.finish(self._left_s(FLUSH_S, after_s=LAST_S))
        if self._crier is not None:
            await self._crier.stop()
        if left:
            worker_log(logging.ERROR, "ends of jobs left unwritten", count=left)
            self.on_unwritten(self._settler)

    def _grace_s(self) -> float:
        """Where a part has died, jobs get what is left before the lease of others could have noticed."""
        settings = self._settings
        broken = self._over.cancelled() or (self._over.done() and self._over.exception() is not None)
        grace_s = min(settings.grace_ms, settings.ttl_ms // 2 if broken else settings.grace_ms) / 1000
        return min(grace_s, GIVEN_UP_S) if self._crew.given_up else grace_s

    async def _close_cells(self) -> None:
        await self._isolation.close(self._left_s(END_S, after_s=LAST_S))

    def _left_s(self, most_s: float, *, after_s: float = 0.0) -> float:
        """How long a step of the end may take, when the steps after it take `after_s`."""
        return max(LEAST_S, min(most_s, self._end_at_s - after_s - self._loop.time()))

    async def _leave(self) -> None:
        if self._crew.given_up:
            return  # the supervisor settles for them and leaves, once this process is gone
        if self._settler.unsettled:
            return  # leaving hands back whatever is held, also what has ended; a lease that runs out is a loss
        self.on_leaving()
        try:
            async with asyncio.timeout(self._left_s(LEAVE_S)):
                await self._store.leave(self._plan.session)
        except (StoreError, TimeoutError) as error:
            worker_log(logging.WARNING, "could not leave", error=error)  # the session ends by its ttl instead
