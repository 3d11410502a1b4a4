"""What the tests of schedules share: a store, a clock that stands still, tickers, and runs moved by hand."""

from __future__ import annotations

import random
from typing import Any

from limpet.core.jobs.view import JobView
from limpet.core.schedules.history import Tick, kind_of, read_ticks
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.schedule import KIND, REVISION, Schedule, read_schedule, source_of
from limpet.core.schedules.when import When
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.ticker import Ticker
from limpet.stores.base import MARK, Store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOON = 20_800 * DAY + 12 * HOUR  # in 2026


def work(n: int = 1) -> None: ...


TASKS = {"work": TaskSpec.declare(work, name="work")}


def declared(when: When, name: str = "hourly", task: str = "work", **more: Any) -> Schedule:
    """A schedule as code declares it."""
    return Schedule.declare(when, task=task, name=name, **more)


class Stage:
    """One store at one instant, which only a test moves."""

    def __init__(self, store: Store, at_ms: int = NOON) -> None:
        self.store = store
        self.clock = Clock(at_ms)
        self.bench = Bench(store, self.clock)
        self.hand = self.bench.hand()

    def ticker(self, *code: Schedule, tasks: dict[str, TaskSpec] | None = None, store: Store | None = None) -> Ticker:
        """A worker's ticker, moved by hand."""
        rng = random.Random(1)
        known = TASKS if tasks is None else tasks
        return Ticker(PatientStore(store or self.store, rng), code, known, rng, clock=lambda: self.clock.now_ms)

    async def tick(self, *code: Schedule) -> None:
        """Let a worker that has just started do what is due."""
        ticker = self.ticker(*code)
        await ticker.look()
        await ticker.look()

    async def add(self, schedule: Schedule) -> None:
        """Store a schedule as a person does at run time."""
        stored = Schedule(**{**_fields(schedule), "source": "runtime", "since_at_ms": self.clock.now_ms})
        await self.store.put_control(stored.control())
        await self.store.put_control(REVISION)

    async def change(self, schedule: Schedule) -> None:
        """Write over a stored schedule."""
        await self.store.put_control(schedule.control())
        await self.store.put_control(REVISION)

    async def stored(self, name: str = "hourly") -> Schedule:
        (control,) = [each for each in await self.store.controls(KIND) if each.name == name]
        found = read_schedule(control)
        assert isinstance(found, Schedule)
        return found

    async def mark(self, name: str = "hourly") -> int | None:
        marks = {control.name: int(control.value) for control in await self.store.controls(MARK)}
        return marks.get(source_of(name))

    async def run(self, at_ms: int, name: str = "hourly") -> JobView | None:
        """The job of one tick."""
        return (await self.store.get([tick_job(name, at_ms)]))[0]

    async def fired(self, name: str = "hourly") -> list[int]:
        """The ticks that have jobs, whatever became of those."""
        jobs = await self.bench.everything()
        return sorted(int.from_bytes(job.id[:6], "big") for job in jobs if f"schedule:{name}" in job.tags)

    async def ticks(self, name: str = "hourly") -> list[Tick]:
        """What is remembered."""
        return read_ticks(await self.store.controls(kind_of(name)))


def _fields(schedule: Schedule) -> dict[str, Any]:
    return {name: getattr(schedule, name) for name in schedule.__struct_fields__}
