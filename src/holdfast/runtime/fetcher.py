"""Claims jobs for free places, and a few milliseconds of work ahead; urgent ones past everything that is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from holdfast.core.job import URGENT
from holdfast.core.lease import Claim, Claimed, ClaimRequest, Serves
from holdfast.core.task import TaskSpec
from holdfast.core.transition import Release
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
    places: int  # that the answer may fill
    reach: tuple[bool, bool, bool]  # threads free, processes free, jobs that must start at once allowed


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

    def give_back(self, jobs: list[Claimed]) -> None:
        """Hand held jobs back, unspent."""
        for job in jobs:
            self.settler.put(Release(job.id, job.token))

    def take(self, claim: Claim) -> None:
        """Hold what was claimed, return what cannot start soon, start what can."""
        for job in claim.jobs:
            self.rack.push(job)
            self.rack.newest_token = max(self.rack.newest_token, job.token)
        self.report.claimed += len(claim.jobs)
        ahead = self.pace.ahead()
        self.crew.refill_at = ahead // 2
        self.crew.wake()
        self.give_back(self.rack.surplus(ahead))


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
        self._dry: tuple[bool, bool, bool] | None = None  # the reach of the last claim, when it found nothing
        self._due: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._seen_started = 0
        self._serves: dict[tuple[bool, bool], Serves] = {}
        self.on_empty: Callable[[Claim], None] = lambda claim: None

    @property
    def dry(self) -> bool:
        """True when the store had nothing for us the last time we asked, and no news came since.

        What is limited starts at once or is not given: an answer to a question without a place says nothing of it.
        """
        return self._dry is not None and self._dry[2]

    def poke(self) -> None:
        """A place is free, or half of the held jobs are gone."""
        if not self._claiming:
            self._poked.set()

    def news(self) -> None:
        """There may be work: ask even if the last answer was empty."""
        self._dry = None
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
                self._shared.rack.promised += want.places
                try:
                    claim = await self._claim(want)
                finally:
                    self._claiming = False
                    self._shared.rack.promised -= want.places
                self._took(want, claim)

    async def stop(self) -> None:
        await super().stop()
        for timer in (self._due, self._stuck):
            if timer is not None:
                timer.cancel()

    def _want(self) -> Want | None:
        rack = self._shared.rack
        free = max(0, rack.slots.free() - rack.promised)
        ahead = self._shared.pace.ahead()
        if not free and rack.held * 2 > ahead:
            return None
        limit = min(MOST_PER_CLAIM, free + ahead - rack.held)
        slots = min(rack.startable(), limit)
        threads, processes = rack.pools["thread"], rack.pools["process"]
        reach = (
            threads is None or threads.free() > 0,
            processes is None or processes.free() > 0,
            slots > 0,
        )
        if limit <= 0 or self._dry == reach:
            return None
        return Want(limit, slots, min(free, limit), reach)

    async def _claim(self, want: Want) -> Claim:
        shared = self._shared
        self._seq += 1
        request = ClaimRequest(shared.session, self._narrowed(want), want.limit, want.slots, self._seq)
        return await shared.patience.ask("claim", partial(shared.store.claim, request))

    def _took(self, want: Want, claim: Claim) -> None:
        if claim.jobs:
            self._dry = None
            self._shared.take(claim)
            self._watch_stuck()
        elif not claim.again:
            self._dry = None if self._told else want.reach
            self._alarm(claim)
            self.on_empty(claim)

    def _narrowed(self, want: Want) -> Serves:
        """A saturated executor's tasks are not asked for: held here they would only wait."""
        threads, processes, _ = want.reach
        if threads and processes:
            return self._shared.serves
        key = threads, processes
        if key not in self._serves:
            shut = {name for name, is_free in (("thread", threads), ("process", processes)) if not is_free}
            tasks = tuple(name for name, spec in self._shared.tasks.items() if spec.executor not in shut)
            base = self._shared.serves
            self._serves[key] = Serves(base.queues, tasks, base.capabilities)
        return self._serves[key]

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
        self.hungry = False  # urgent jobs wait in the store for a place to fall free here
        self.on_asked: Callable[[], None] = lambda: None

    def call(self) -> None:
        """An urgent job has arrived, or a place for one is free."""
        self._called.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        shared = self._shared
        while True:
            await self._called.wait()
            self._called.clear()
            free = max(0, shared.rack.slots.free(URGENT) - shared.rack.promised)
            # With quick jobs a place falls free before a claim comes back, so one urgent job may be held.
            limit = free + (1 if shared.pace.ahead() else 0)
            self.hungry = not limit
            if not limit:
                continue
            self._seq += 1
            slots = shared.rack.startable(URGENT, of_saturated=True)
            request = ClaimRequest(shared.session, shared.serves, limit, slots, self._seq, self.name, URGENT)
            shared.rack.promised += free
            try:
                claim = await shared.patience.ask("claim", partial(shared.store.claim, request))
            finally:
                shared.rack.promised -= free
            if claim.jobs:
                shared.take(claim)
                self._make_room()
            self.on_asked()
            if claim.again or len(claim.jobs) == limit:
                self.hungry = True
                if shared.rack.slots.free(URGENT):
                    self.call()
                    await asyncio.sleep(0)  # others may ask for the places in between

    def _make_room(self) -> None:
        """Urgent jobs push out the least urgent ones held here."""
        shared = self._shared
        most = max(shared.pace.ahead(), 1)
        if shared.rack.held > 2 * most:
            shared.give_back(shared.rack.shed(most))
