"""Claims jobs for free places, and a few milliseconds of work ahead; urgent ones past everything that is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from holdfast.core.job import LEAST_URGENT, URGENT
from holdfast.core.lease import Claim, Claimed, ClaimRequest, Serves
from holdfast.core.task import TaskSpec
from holdfast.core.transition import Release
from holdfast.runtime.ageing import Ageing, Reach
from holdfast.runtime.crew import Crew
from holdfast.runtime.pace import Pace
from holdfast.runtime.part import Part
from holdfast.runtime.patience import Patience
from holdfast.runtime.rack import Rack
from holdfast.runtime.settings import WorkReport
from holdfast.runtime.settler import Settler
from holdfast.stores.base import Store

MOST_PER_CLAIM: Final = 1_024
STUCK_S: Final = 0.1  # held jobs that nobody started for so long are given to whoever is free


class Want(Struct, frozen=True):
    """What a claimer asks for now. Two equal `reach`es would get the same empty answer again."""

    limit: int
    slots: int
    reach: Reach
    floor: int = 0  # aged jobs: what is more urgent than this level is passed over


class Claiming(Struct, frozen=True):
    """What both claimers share."""

    store: Store
    session: str
    serves: Serves
    tasks: Mapping[str, TaskSpec]
    rack: Rack
    pace: Pace
    settler: Settler
    patience: Patience
    report: WorkReport
    crew: Crew
    ageing: Ageing
    _narrowed: dict[tuple[bool, bool], Serves] = {}

    def reach(self, priority: int, free: int, *, aged: bool = False) -> Reach:
        """What jobs of that priority could start with so many free slots."""
        idle = self.rack.idle
        return idle("thread", priority, aged=aged), idle("process", priority, aged=aged), free > 0

    def reached(self, reach: Reach) -> Serves:
        """A saturated executor's tasks are not asked for: held here they would only wait."""
        threads, processes, _ = reach
        if threads and processes:
            return self.serves
        key = threads, processes
        if key not in self._narrowed:
            shut = {name for name, is_free in (("thread", threads), ("process", processes)) if not is_free}
            tasks = tuple(name for name, spec in self.tasks.items() if spec.executor not in shut)
            self._narrowed[key] = Serves(self.serves.queues, tasks, self.serves.capabilities)
        return self._narrowed[key]

    def give_back(self, jobs: list[Claimed]) -> None:
        """Hand held jobs back, unspent."""
        self.ageing.give_back(len(jobs))
        for job in jobs:
            self.settler.put(Release(job.id, job.token))

    def take(self, claim: Claim, *, aged: bool = False) -> None:
        """Hold what was claimed, return what cannot start soon, start what can."""
        for job in claim.jobs:
            self.rack.push(job, aged=aged)
            self.rack.newest_token = max(self.rack.newest_token, job.token)
        self.report.claimed += len(claim.jobs)
        ahead = self.pace.ahead()
        self.crew.refill_at = ahead // 2
        self.crew.wake()
        surplus = self.rack.surplus(ahead)
        if aged:
            self.ageing.took(claim.jobs, [job for job in claim.jobs if job not in surplus])
        else:
            self.ageing.count(claim.jobs)
        self.give_back(surplus)


class Fetcher(Part):
    """Demand → claim → rack. One claim at a time; refills when half of what it may hold is gone."""

    name = "fetcher"

    def __init__(self, shared: Claiming) -> None:
        super().__init__()
        self._shared = shared
        self._seq = 0
        self._poked = asyncio.Event()
        self._claiming = False
        self._told = False  # news came while a claim was under way, whose answer may be older
        self._dry: Reach | None = None  # the reach of the last claim, when it found nothing
        self._short: Reach | None = None  # that of the last claim, when it got all there was of any level
        self._due: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._seen_started = 0
        self.on_empty: Callable[[Claim], None] = lambda claim: None

    @property
    def dry(self) -> bool:
        """True when the store had nothing for us the last time we asked, and no news came since."""
        return self._dry is not None

    def poke(self) -> None:
        """A place is free, or half of the held jobs are gone."""
        if not self._claiming:
            self._poked.set()

    def news(self) -> None:
        """There may be work: ask even if the last answer was empty."""
        self._dry = self._short = None
        self._told = True
        self._poked.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        self._poked.set()
        while True:
            await self._poked.wait()
            self._poked.clear()
            while (want := self._want()) is not None:
                self._claiming, self._told = True, False
                self._shared.rack.promised += want.slots
                try:
                    claim = await self._claim(want)
                finally:
                    self._claiming = False
                    self._shared.rack.promised -= want.slots
                self._took(want, claim)

    async def stop(self) -> None:
        await super().stop()
        for timer in (self._due, self._stuck):
            if timer is not None:
                timer.cancel()

    def _want(self) -> Want | None:
        # Aged jobs first: of a limit that is short, strict claims would leave nothing.
        return self._room(aged=True) or self._room(aged=False)

    def _room(self, *, aged: bool) -> Want | None:
        shared, rack = self._shared, self._shared.rack
        free = max(0, rack.slots.free(aged=aged) - rack.promised)
        ahead = shared.pace.ahead()
        if not free and rack.held * 2 > ahead:
            return None
        limit = min(MOST_PER_CLAIM, free + ahead - rack.held)
        reach = shared.reach(LEAST_URGENT, free, aged=aged)
        if aged:
            limit = min(limit, shared.ageing.owed(rack.slots.size + ahead, reach))
        if limit <= 0 or reach == (self._short if aged else self._dry):
            return None
        return Want(limit, min(free, limit), reach, shared.ageing.floor if aged else 0)

    async def _claim(self, want: Want) -> Claim:
        shared, claimer = self._shared, "ageing" if want.floor else self.name
        self._seq += 1
        serves = shared.reached(want.reach)
        request = ClaimRequest(
            shared.session, serves, want.limit, want.slots, self._seq, claimer, most_urgent=want.floor
        )
        return await shared.patience.ask("claim", partial(shared.store.claim, request))

    def _took(self, want: Want, claim: Claim) -> None:
        if claim.jobs:
            self._shared.take(claim, aged=want.floor > 0)
            self._watch_stuck()
        if not want.floor:
            self._took_strictly(want, claim)
        elif not claim.jobs and not claim.again:
            self._shared.ageing.found_nothing(want.reach)

    def _took_strictly(self, want: Want, claim: Claim) -> None:
        all_given = len(claim.jobs) < (want.slots or want.limit) and not claim.again and not self._told
        self._short = want.reach if all_given else None
        if claim.jobs:
            self._dry = None
        elif not claim.again:
            self._dry = None if self._told else want.reach
            self._alarm(claim)
            self.on_empty(claim)

    def _alarm(self, claim: Claim) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if claim.next_at_ms is not None:
            wait_s = max(0, claim.next_at_ms - claim.now_ms) / 1000
            self._due = asyncio.get_running_loop().call_later(wait_s, self.news)

    def _watch_stuck(self) -> None:
        if self._stuck is None and self._shared.rack.held:
            self._seen_started = self._shared.rack.started
            self._stuck = asyncio.get_running_loop().call_later(STUCK_S, self._unstick)

    def _unstick(self) -> None:
        """Jobs that were quick have turned slow: what is held here could start elsewhere."""
        self._stuck = None
        rack = self._shared.rack
        if rack.held and rack.started == self._seen_started:
            self._shared.pace.stall()
            self._shared.give_back(rack.shed(0))
        self._watch_stuck()


class Bypass(Part):
    """Claims critical and high jobs the moment they arrive, however much is held: a flood must not delay an email."""

    name = "bypass"

    def __init__(self, shared: Claiming) -> None:
        super().__init__()
        self._shared = shared
        self._seq = 0
        self._called = asyncio.Event()
        self._hungry = False  # urgent jobs may wait in the store for a place to fall free here
        self._dry: Reach | None = None  # the reach of the last claim, when it found nothing
        self.on_answer: Callable[[], None] = lambda: None  # slots that were promised may be free after all

    def call(self) -> None:
        """An urgent job has arrived."""
        self._dry = None
        self._called.set()

    def poke(self) -> None:
        """A place is free."""
        if self._hungry:
            self._called.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        shared = self._shared
        while True:
            await self._called.wait()
            # What was claimed before starts now, and the fetcher asks first: the place may be for an aged job.
            await asyncio.sleep(0)
            self._called.clear()
            free = max(0, shared.rack.slots.free(URGENT) - shared.rack.promised)
            # With quick jobs a place falls free before a claim comes back, so one urgent job may be held.
            limit = free + (1 if shared.pace.ahead() else 0)
            reach = shared.reach(URGENT, free)
            self._hungry = not (limit and reach[0] and reach[1])
            if not limit or reach == self._dry:
                continue
            self._seq += 1
            serves = shared.reached(reach)
            request = ClaimRequest(shared.session, serves, limit, free, self._seq, self.name, URGENT)
            shared.rack.promised += free
            try:
                claim = await shared.patience.ask("claim", partial(shared.store.claim, request))
            finally:
                shared.rack.promised -= free
            self.on_answer()
            if claim.jobs:
                shared.take(claim)
                self._make_room()
            elif not claim.again and not self._called.is_set():
                self._dry = reach
            if claim.again or len(claim.jobs) == limit:
                self._hungry = True
                if shared.rack.slots.free(URGENT):
                    self.call()

    def _make_room(self) -> None:
        """Urgent jobs push out the least urgent ones held here."""
        shared = self._shared
        most = max(shared.pace.ahead(), 1)
        if shared.rack.held > 2 * most:
            shared.give_back(shared.rack.shed(most))
