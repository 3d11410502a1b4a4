"""Claims jobs: the fetcher for free slots and a few milliseconds of work ahead, the bypass urgent ones past all held.

The listener sleeps until the store has news, tells both, and takes the jobs that come with a wake-up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final

from msgspec import Struct

from limpet.core.errors import StoreError
from limpet.core.jobs.job import LEAST_URGENT, URGENT
from limpet.core.jobs.lease import Claim, Claimed, ClaimOptions, ClaimRequest, Serves, Takes, Wake
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.ageing import Ageing, Short
from limpet.runtime.audit import Audit
from limpet.runtime.barred_gates import BarredGates
from limpet.runtime.executor import Executor
from limpet.runtime.handed_jobs import HandedJobs, has_place, takes
from limpet.runtime.keeper import Keeper
from limpet.runtime.local_queue import LocalQueue, Pace, Reach, stops
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.settings import WorkReport
from limpet.runtime.settler import SettleQueue

NONE: Final = Takes()
LEAVE_S: Final = 0.5  # how long the end waits for the store to hear that this worker sleeps no more
STUCK_S: Final = 0.1  # held jobs of which none started for so long are handed back: another worker may be free


class Want(Struct, frozen=True):
    """What a claimer asks for now. Two equal `reach`es would get the same empty answer again."""

    limit: int
    startable: int  # of those, how many may be ones that must start at once
    slots: int  # that the answer may fill
    reach: Reach
    least_urgent: int = LEAST_URGENT
    aged: int = 0  # jobs that may be taken past more urgent ones
    aged_reach: Reach | None = None  # of aged jobs, where it is not the same


class Claiming(Struct, frozen=True, kw_only=True):
    """Asks the store and holds the jobs it gives: the part that both claimers share."""

    store: PatientStore
    session: str
    serves: Serves
    tasks: Mapping[str, TaskSpec]
    local_queue: LocalQueue
    pace: Pace
    ageing: Ageing | None
    barred_gates: BarredGates
    executor: Executor
    settle_queue: SettleQueue
    report: WorkReport
    batch: int  # jobs in one claim
    takes_handed: bool  # the store may hand jobs to this session while it sleeps
    _narrowed: dict[tuple[bool, bool], Serves] = {}

    def owed(self, reach: Reach) -> int:
        """How many aged jobs may be claimed now, where they could reach so much."""
        if self.ageing is None:
            return 0
        return self.ageing.owed(self.local_queue.slots.size + self.pace.ahead(), self._short(reach))

    def _short(self, reach: Reach) -> Short:
        threads, processes, slots = reach
        executors = self.local_queue.executors
        return threads and "thread" in executors, processes and "process" in executors, slots

    async def ask(self, claimer: str, seq: int, want: Want) -> Claim:
        """Claim, and hold the jobs that were given."""
        ageing, gates, aged_from = self.ageing, self.barred_gates, 0
        if ageing is not None and want.aged:
            aged_from = ageing.most_urgent
        serves = self._served(want.reach)
        request = ClaimRequest(
            self.session,
            gates.served(serves) if self.local_queue.overtaken else serves,
            want.limit,
            want.startable,
            seq,
            claimer,
            ClaimOptions(want.least_urgent, want.aged, aged_from),
            takes(self.local_queue) if self.takes_handed and want.least_urgent == LEAST_URGENT else NONE,
        )
        self.local_queue.promised += want.slots
        gates.asking += 1
        heard = gates.heard
        try:
            claim = await self.store.claim(request)
        finally:
            self.local_queue.promised -= want.slots
            gates.asking -= 1
        shut = gates.shut_since(heard) if gates.heard != heard else frozenset[str]()
        if claim.jobs:
            if ageing is None:
                self._hold(claim, shut)
            else:
                self._hold_aged(ageing, claim, want, aged_from, shut)
        return claim

    def hold_handed(self, job: Claimed) -> None:
        """Start a job that came with a wake-up: the step that stored it has claimed it."""
        if self.ageing is not None:
            self.ageing.count([job], self._short((True, True, True)))
        self._hold(Claim((job,), job.claimed_at_ms), frozenset())

    async def leave_sleep(self) -> None:
        """Tell the store that this session sleeps no more."""
        await self.store.store.claim(ClaimRequest(self.session, self.serves, 0, 0, 0, "leaving"))

    def release(self, jobs: list[Claimed]) -> None:
        """Hand held jobs back, unspent."""
        if self.ageing is not None:
            self.ageing.give_back(len(jobs))
        self.settle_queue.release(jobs)

    def _served(self, reach: Reach) -> Serves:
        """A saturated executor's tasks are not asked for: held here they would only wait."""
        threads, processes, _ = reach
        if threads and processes:
            return self.serves
        key = threads, processes
        if key not in self._narrowed:
            full = {name for name, is_free in (("thread", threads), ("process", processes)) if not is_free}
            tasks = tuple(name for name, spec in self.tasks.items() if spec.executor not in full)
            self._narrowed[key] = Serves(self.serves.queues, tasks, self.serves.capabilities)
        return self._narrowed[key]

    def _hold_aged(self, ageing: Ageing, claim: Claim, want: Want, aged_from: int, shut: frozenset[str]) -> None:
        """Hold what was claimed, and count which of it has passed more urgent jobs."""
        aged = [job for job in claim.jobs if job.lane.priority >= aged_from][: want.aged]
        passing, short = {job.id for job in aged}, self._short(want.aged_reach or want.reach)
        ageing.count([job for job in claim.jobs if job.id not in passing], short)
        back = self._hold(claim, shut, passing)
        ageing.took(aged, [job for job in aged if job not in back], short, asked=want.aged)
        if want.aged and not aged:
            ageing.nobody_came(aged_from, short, anybody_could=all(want.reach))

    def _hold(self, claim: Claim, shut: frozenset[str], passing: Set[bytes] = frozenset()) -> list[Claimed]:
        """Hold what was claimed, start what can; hand back what cannot start soon, and answer that."""
        local_queue = self.local_queue
        excess: list[Claimed] = []
        for job in claim.jobs:
            if shut and stops(shut, job.lane):  # it was claimed before that, as far as is known here
                excess.append(job)
            else:
                local_queue.push(job, aged=job.id in passing)
            local_queue.newest_token = max(local_queue.newest_token, job.token)
        self.report.claimed += len(claim.jobs)
        ahead = self.pace.ahead()
        self.executor.refill_at = ahead // 2
        self.executor.wake()
        excess += local_queue.take_excess(ahead)
        if excess:
            self.release(excess)
        return excess


class Fetcher(Part):
    """Demand → claim → local queue. One claim at a time; refills when half of what it may hold is gone."""

    name = "fetcher"

    def __init__(self, shared: Claiming, on_empty: Callable[[Claim], None] | None = None) -> None:
        super().__init__()
        self._shared = shared
        self._signal = shared.local_queue.demand.all
        self._on_empty = on_empty
        self._seq = 0
        self._due: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._seen_started = 0

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        signal = self._signal
        signal.event.set()
        while True:
            await signal.event.wait()
            signal.event.clear()
            while (want := self._want()) is not None:
                signal.wants_slots, signal.told = False, False
                self._seq += 1
                try:
                    claim = await self._shared.ask(self.name, self._seq, want)
                finally:
                    signal.wants_slots = True
                self._took(want, claim)
                if claim.jobs:
                    await asyncio.sleep(0)  # they start before the next claim is asked for

    async def stop(self) -> None:
        await super().stop()
        for timer in (self._due, self._stuck):
            if timer is not None:
                timer.cancel()

    def _want(self) -> Want | None:
        shared, local_queue = self._shared, self._shared.local_queue
        ahead = shared.pace.ahead()
        free = max(0, local_queue.slots.free() - local_queue.promised)
        held = local_queue.held + local_queue.waiting
        if not free and held * 2 > ahead:
            return None
        limit = min(shared.batch, free + ahead - held)
        startable = local_queue.startable()
        reach = local_queue.reach(LEAST_URGENT, startable)
        if limit <= 0 or self._signal.empty_for == reach:
            return None
        aged = min(limit, shared.owed(reach))
        return Want(limit, min(startable, limit), min(free, limit), reach, aged=aged)

    def _took(self, want: Want, claim: Claim) -> None:
        signal = self._signal
        if claim.jobs:
            signal.empty_for = None
            self._watch_stuck()
            if sum(job.lane.priority <= URGENT for job in claim.jobs) >= max(1, want.limit - want.aged):
                # Urgent jobs may be left, for the places that are kept for them.
                self._shared.local_queue.demand.urgent.news()
        elif not claim.again:
            signal.empty_for = None if signal.told else want.reach
            self._set_alarm(claim)
            if self._on_empty is not None:
                self._on_empty(claim)

    def _set_alarm(self, claim: Claim) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if claim.next_at_ms is not None:
            wait_s = max(0, claim.next_at_ms - claim.now_ms) / 1000
            self._due = asyncio.get_running_loop().call_later(wait_s, self._signal.news)

    def _watch_stuck(self) -> None:
        if self._stuck is None and self._shared.local_queue.held:
            self._seen_started = self._shared.local_queue.started
            self._stuck = asyncio.get_running_loop().call_later(STUCK_S, self._unstick)

    def _unstick(self) -> None:
        """Jobs that were quick have turned slow: the jobs held here could start elsewhere."""
        self._stuck = None
        local_queue = self._shared.local_queue
        if local_queue.held and local_queue.started == self._seen_started:
            self._shared.pace.stall()
            self._shared.release(local_queue.trim(0))
        self._watch_stuck()


class Bypass(Part):
    """Claims critical and high jobs the moment they arrive, however much is held: a flood must not delay an email."""

    name = "bypass"

    def __init__(self, shared: Claiming) -> None:
        super().__init__()
        self._shared = shared
        self._signal = shared.local_queue.demand.urgent
        self._seq = 0

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        signal, local_queue = self._signal, self._shared.local_queue
        while True:
            await signal.event.wait()
            signal.event.clear()
            await self._let_aged_pass()
            want = self._want()
            if want is None:
                continue
            claim = await self._ask(want)
            if claim.jobs:
                self._make_room()
            elif not claim.again and not signal.told:
                signal.empty_for = want.reach  # a slot that fell free changes nothing, unless it reaches further
            if claim.again or len(claim.jobs) == want.limit:
                signal.wants_slots = True
                if local_queue.slots.free(URGENT) > local_queue.waiting:
                    signal.news()
                    await asyncio.sleep(0)  # the fetcher may ask for the slots in between

    async def _ask(self, want: Want) -> Claim:
        self._seq += 1
        self._signal.told = False
        claim = await self._shared.ask(self.name, self._seq, want)
        self._shared.local_queue.demand.all.slot_free()  # slots that were promised may be free after all
        return claim

    def _want(self) -> Want | None:
        """Urgent jobs for whatever is free, and aged ones among them where those can go wherever urgent ones can."""
        shared, local_queue, signal = self._shared, self._shared.local_queue, self._signal
        free = max(0, local_queue.slots.free(URGENT) - local_queue.promised - local_queue.waiting)
        # With quick jobs a slot falls free before a claim comes back, so one urgent job may be held.
        limit = free + (1 if shared.pace.ahead() else 0)
        startable = local_queue.startable(URGENT)
        reach, aged_reach = local_queue.reach(URGENT, startable), local_queue.reach(LEAST_URGENT, startable)
        signal.wants_slots = not (limit and all(reach))  # urgent jobs may wait in the store for a slot
        if not limit or reach == signal.empty_for:
            return None
        aged = self._aged(aged_reach) if aged_reach == reach else 0
        return Want(limit, startable, free, reach, URGENT, aged, aged_reach)

    async def _let_aged_pass(self) -> None:
        """Where an urgent job finds a thread and an aged one does not, those are asked for that need none."""
        local_queue = self._shared.local_queue
        startable = local_queue.startable(URGENT)
        urgent, reach = local_queue.reach(URGENT, startable), local_queue.reach(LEAST_URGENT, startable)
        if reach != urgent != self._signal.empty_for and (aged := self._aged(reach)):
            await self._ask(Want(aged, min(startable, aged), aged, reach, URGENT, aged))

    def _aged(self, reach: Reach) -> int:
        """Where urgent jobs take every slot that falls free, aged ones can have none but those."""
        local_queue = self._shared.local_queue
        return min(self._shared.owed(reach), max(0, local_queue.slots.free() - local_queue.promised))

    def _make_room(self) -> None:
        """Urgent jobs push out the least urgent ones held here."""
        shared = self._shared
        most = max(shared.pace.ahead(), 1)
        if shared.local_queue.held > 2 * most:
            shared.release(shared.local_queue.trim(most))


class Listener(Part):
    """The only part that waits on the store; no wait outlasts a beat, so a missed wake-up costs seconds, not hours."""

    name = "listener"

    def __init__(self, shared: Claiming, timeout_ms: int, keeper: Keeper, audit: Audit, handed: HandedJobs) -> None:
        super().__init__()
        self._shared = shared
        self._timeout_ms = timeout_ms
        self._keeper = keeper
        self._audit = audit
        self._handed = handed

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        shared = self._shared
        demand = shared.local_queue.demand
        while True:
            wake = await shared.store.wait(shared.session, self._timeout_ms)
            if wake.jobs:
                self._take(wake)
            if wake.cancel:
                self._keeper.beat_now()
                self._audit.look(now=True)
            if wake.urgent:
                demand.urgent.news()
            if wake.work or not (wake.urgent or wake.cancel or wake.jobs):
                demand.all.news()  # an elapsed wait asks once too, in case a wake-up was lost
                if not wake.work:
                    demand.urgent.news()
            await asyncio.sleep(0)  # a store that answers at once must not keep the loop

    async def stop(self) -> None:
        """End; before that say that this session sleeps no more, so that it is handed no more jobs."""
        self._handed.refuse()
        if self._task is not None and self._shared.takes_handed:
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._shared.leave_sleep()
            except (StoreError, TimeoutError) as error:
                worker_log(logging.WARNING, "could not say that this worker takes no more jobs", error=error)
            await super().stop()
            with suppress(StoreError):
                self._take(await self._shared.store.store.wait(self._shared.session, 0))
        await super().stop()

    def _take(self, wake: Wake) -> None:
        """Start the jobs that came with a wake-up; hand back what finds no place."""
        shared = self._shared
        for handed in self._handed.arrived(wake.jobs):
            if has_place(shared.local_queue, handed.job):
                shared.hold_handed(handed.job)
            else:
                shared.settle_queue.release([handed.job])
            if handed.awake or not has_place(shared.local_queue, handed.job):
                shared.local_queue.demand.all.news()  # ask again, and say how many places there are by then
