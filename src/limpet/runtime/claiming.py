"""Asks the store for jobs and holds what it gives: what those who claim for a worker share."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from limpet.core.endings.transition import Release
from limpet.core.jobs.job import LEAST_URGENT
from limpet.core.jobs.lease import Claim, Claimed, ClaimRequest, Serves
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.ageing import Ageing, Short
from limpet.runtime.crew import Crew
from limpet.runtime.pace import Pace
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.rack import Rack, stops
from limpet.runtime.settings import WorkReport
from limpet.runtime.settler import Settler
from limpet.runtime.stopping import Stopping

Reach = tuple[bool, bool, bool]  # threads free, processes free, jobs that must start at once allowed


class Want(Struct, frozen=True):
    """What a claimer asks for now. Two equal `reach`es would get the same empty answer again."""

    limit: int
    slots: int  # of those, how many may be ones that must start at once
    places: int  # that the answer may fill
    reach: Reach
    least_urgent: int = LEAST_URGENT
    aged: int = 0  # so many may be taken past more urgent ones
    aged_reach: Reach | None = None  # of aged jobs, where it is not the same


class Claiming(Struct, frozen=True):
    """The store, the session, and where jobs go."""

    store: PatientStore
    session: str
    serves: Serves
    tasks: Mapping[str, TaskSpec]
    rack: Rack
    pace: Pace
    settler: Settler
    report: WorkReport
    crew: Crew
    ageing: Ageing
    stopping: Stopping
    _narrowed: dict[tuple[bool, bool], Serves] = {}

    def owed(self, reach: Reach) -> int:
        """How many aged jobs may be claimed now, where they could reach so much."""
        return self.ageing.owed(self.rack.slots.size + self.pace.ahead(), self._short(reach))

    def _short(self, reach: Reach) -> Short:
        threads, processes, slots = reach
        return threads and "thread" in self.rack.executors, processes and "process" in self.rack.executors, slots

    def reach(self, priority: int, slots: int) -> Reach:
        """What jobs of that priority could start when so many may start at once."""
        return self.rack.idle("thread", priority), self.rack.idle("process", priority), slots > 0

    async def ask(self, claimer: str, seq: int, want: Want) -> Claim:
        """Claim, and hold what was given."""
        most_urgent = self.ageing.most_urgent if want.aged else 0
        request = ClaimRequest(
            self.session,
            self.stopping.served(self._served(want.reach)),
            want.limit,
            want.slots,
            seq,
            claimer,
            want.least_urgent,
            want.aged,
            most_urgent,
        )
        self.rack.promised += want.places
        asked = self.stopping.ask()
        try:
            claim = await self.store.claim(request)
        finally:
            self.rack.promised -= want.places
            shut = self.stopping.hear(asked)
        if claim.jobs:
            aged: list[Claimed] = []
            if want.aged:
                aged = [job for job in claim.jobs if job.lane.priority >= most_urgent][: want.aged]
            short = self._short(want.aged_reach or want.reach)
            self._hold(claim, aged, want.aged, short, shut)
            if want.aged and not aged:
                self.ageing.nobody_came(most_urgent, short, anybody_could=all(want.reach))
        return claim

    def give_back(self, jobs: list[Claimed]) -> None:
        """Hand held jobs back, unspent."""
        self.ageing.give_back(len(jobs))
        for job in jobs:
            self.settler.put(Release(job.id, job.token))

    def _served(self, reach: Reach) -> Serves:
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

    def _hold(self, claim: Claim, aged: list[Claimed], asked: int, short: Short, shut: frozenset[str]) -> None:
        """Hold what was claimed, return what cannot start soon, start what can."""
        passing = {job.id for job in aged}
        surplus: list[Claimed] = []
        for job in claim.jobs:
            if shut and stops(shut, job.lane):  # it was claimed before that, as far as is known here
                surplus.append(job)
            else:
                self.rack.push(job, aged=job.id in passing)
            self.rack.newest_token = max(self.rack.newest_token, job.token)
        self.report.claimed += len(claim.jobs)
        ahead = self.pace.ahead()
        self.crew.refill_at = ahead // 2
        self.crew.wake()
        surplus += self.rack.surplus(ahead)
        self.ageing.count([job for job in claim.jobs if job.id not in passing], short)
        self.ageing.took(aged, [job for job in aged if job not in surplus], short, asked=asked)
        self.give_back(surplus)
