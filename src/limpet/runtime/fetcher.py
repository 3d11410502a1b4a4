"""Claims jobs for free places, and a few milliseconds of work ahead; urgent ones past everything that is held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from limpet.core.job import LEAST_URGENT, URGENT
from limpet.core.lease import Claim
from limpet.runtime.claiming import Claiming, Reach, Want
from limpet.runtime.part import Part

MOST_PER_CLAIM: Final = 1_024
STUCK_S: Final = 0.1  # held jobs that nobody started for so long are given to whoever is free


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
        self._due: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._seen_started = 0
        self.on_empty: Callable[[Claim], None] = lambda claim: None
        self.on_urgent: Callable[[], None] = lambda: None  # urgent jobs may be left, for places that are kept for them

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
                self._seq += 1
                try:
                    claim = await self._shared.ask(self.name, self._seq, want)
                finally:
                    self._claiming = False
                self._took(want, claim)

    async def stop(self) -> None:
        await super().stop()
        for timer in (self._due, self._stuck):
            if timer is not None:
                timer.cancel()

    def _want(self) -> Want | None:
        shared, rack = self._shared, self._shared.rack
        ahead = shared.pace.ahead()
        free = max(0, rack.slots.free() - rack.promised)
        held = rack.held + rack.waiting
        if not free and held * 2 > ahead:
            return None
        limit = min(MOST_PER_CLAIM, free + ahead - held)
        slots = rack.startable()
        reach = shared.reach(LEAST_URGENT, slots)
        if limit <= 0 or self._dry == reach:
            return None
        aged = min(limit, shared.owed(reach))
        return Want(limit, min(slots, limit), min(free, limit), reach, aged=aged)

    def _took(self, want: Want, claim: Claim) -> None:
        if claim.jobs:
            self._dry = None
            self._watch_stuck()
            if sum(job.lane.priority <= URGENT for job in claim.jobs) >= max(1, want.limit - want.aged):
                self.on_urgent()
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
        self._told = False  # one came while a claim was under way, whose answer may be older
        self._hungry = False  # urgent jobs may wait in the store for a place to fall free here
        self._dry: Reach | None = None  # the reach of the last claim, when it found nothing
        self.on_answer: Callable[[], None] = lambda: None  # slots that were promised may be free after all

    def call(self) -> None:
        """An urgent job has arrived."""
        self._dry = None
        self._told = True
        self._called.set()

    def poke(self) -> None:
        """A place is free."""
        if self._hungry:
            self._called.set()

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        rack = self._shared.rack
        while True:
            await self._called.wait()
            self._called.clear()
            await self._let_aged_pass()
            want = self._want()
            if want is None:
                continue
            claim = await self._ask(want)
            if claim.jobs:
                self._make_room()
            elif not claim.again and not self._told:
                self._dry = want.reach  # a place that fell free meanwhile changes nothing, unless it reaches further
            if claim.again or len(claim.jobs) == want.limit:
                self._hungry = True
                if rack.slots.free(URGENT) > rack.waiting:
                    self.call()
                    await asyncio.sleep(0)  # others may ask for the places in between

    async def _ask(self, want: Want) -> Claim:
        self._seq += 1
        self._told = False
        claim = await self._shared.ask(self.name, self._seq, want)
        self.on_answer()
        return claim

    def _want(self) -> Want | None:
        """Urgent jobs for whatever is free, and aged ones among them where those can go wherever urgent ones can."""
        shared, rack = self._shared, self._shared.rack
        free = max(0, rack.slots.free(URGENT) - rack.promised - rack.waiting)
        # With quick jobs a place falls free before a claim comes back, so one urgent job may be held.
        limit = free + (1 if shared.pace.ahead() else 0)
        slots = rack.startable(URGENT)
        reach, aged_reach = shared.reach(URGENT, slots), self._aged_reach(slots)
        self._hungry = not (limit and all(reach))
        if not limit or reach == self._dry:
            return None
        aged = self._aged(aged_reach) if aged_reach == reach else 0
        return Want(limit, slots, free, reach, URGENT, aged, aged_reach)

    async def _let_aged_pass(self) -> None:
        """Where an urgent job finds a thread and an aged one does not, those are asked for that need none."""
        slots = self._shared.rack.startable(URGENT)
        urgent, reach = self._shared.reach(URGENT, slots), self._aged_reach(slots)
        if reach != urgent != self._dry and (aged := self._aged(reach)):
            await self._ask(Want(aged, min(slots, aged), aged, reach, URGENT, aged))

    def _aged_reach(self, slots: int) -> Reach:
        return self._shared.reach(LEAST_URGENT, slots)

    def _aged(self, reach: Reach) -> int:
        """Where urgent jobs take every place that falls free, aged ones can have none but those."""
        rack = self._shared.rack
        return min(self._shared.owed(reach), max(0, rack.slots.free() - rack.promised))

    def _make_room(self) -> None:
        """Urgent jobs push out the least urgent ones held here."""
        shared = self._shared
        most = max(shared.pace.ahead(), 1)
        if shared.rack.held > 2 * most:
            shared.give_back(shared.rack.shed(most))
