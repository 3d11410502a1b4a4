"""Asks an operator for all that one look at the screen shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from limpet.core.errors import JobNotFound
from limpet.core.text.duration import iso

if TYPE_CHECKING:
    from limpet.core.records.cause import CauseRecord
    from limpet.core.records.job import JobDetail, JobRecord
    from limpet.core.records.queue import QueueRecord, StatsRecord
    from limpet.core.records.task import TaskRecord
    from limpet.core.records.worker import WorkerRecord
    from limpet.ops import Operator

MOST_JOBS: Final = 200
MOST_CAUSES: Final = 50
REMEMBERED: Final = 240  # minutes, as wide as most screens
LEARNS_MS: Final = 30_000
ENDS: Final = ("succeeded", "dead", "cancelled")


class Picture(Struct, frozen=True, kw_only=True):
    """What was true at one moment; lists are None where they were not asked for."""

    at_ms: int
    stats: StatsRecord
    queues: list[QueueRecord] = []
    tasks: list[TaskRecord] = []
    workers: list[WorkerRecord] = []
    causes: list[CauseRecord] = []
    jobs: tuple[JobRecord, ...] = ()
    job: JobDetail | None = None
    told: str = ""  # why the job is where it is

    def to_dict(self) -> dict[str, Any]:
        """What programs are answered."""
        return {
            "at": iso(self.at_ms),
            "stats": self.stats.to_dict(),
            "queues": [each.to_dict() for each in self.queues],
            "tasks": [each.to_dict() for each in self.tasks],
            "workers": [each.to_dict() for each in self.workers],
            "causes": [each.to_dict() for each in self.causes],
        }


class Pace:
    """How many jobs ended in a second: minute by minute as the store has kept it, and since the last look."""

    def __init__(self) -> None:
        self.now = 0.0  # by the store's counters, so also of workers that are gone
        self.minutes: list[float] = []  # the oldest first
        self._before: tuple[int, int] | None = None
        self._asked_ms = -LEARNS_MS

    def add(self, picture: Picture) -> None:
        """Count what has ended since the look before."""
        ever = picture.stats.ever
        if ever is None:
            return
        now_ms, ended = picture.at_ms, ever.succeeded + ever.cancelled + picture.stats.dead
        if self._before is not None and now_ms > self._before[0]:
            before_ms, before = self._before
            self.now = max(0, ended - before) * 1000 / (now_ms - before_ms)
        self._before = now_ms, ended

    async def learn(self, operator: Operator) -> None:
        """Read the minutes again, where the last ones are old."""
        now_ms = operator.now_ms()
        if now_ms - self._asked_ms < LEARNS_MS:
            return
        self._asked_ms = now_ms
        found = await operator.series(f"{REMEMBERED}m", step="1m")
        ends = [found.total.ended[outcome] for outcome in ENDS if outcome in found.total.ended]
        self.minutes = [sum(counts) / 60 for counts in zip(*ends, strict=True)][:-1]  # the last one is not over


async def look(operator: Operator) -> Picture:
    """Everything that the lists show."""
    return Picture(
        at_ms=operator.now_ms(),
        stats=await operator.stats(),
        queues=await operator.queues(),
        tasks=await operator.tasks(),
        workers=await operator.workers(),
        causes=await operator.causes(limit=MOST_CAUSES),
    )


async def look_for(operator: Operator, query: str) -> Picture:
    """The jobs that match a query."""
    page = await operator.jobs(query, limit=MOST_JOBS)
    return Picture(at_ms=operator.now_ms(), stats=await operator.stats(), jobs=page.jobs)


async def look_at(operator: Operator, id: str) -> Picture:
    """One job; it may be gone."""
    stats = await operator.stats()
    try:
        job, told = await operator.job(id), (await operator.explain(id)).text
    except JobNotFound:
        return Picture(at_ms=operator.now_ms(), stats=stats)
    return Picture(at_ms=operator.now_ms(), stats=stats, job=job, told=told)
