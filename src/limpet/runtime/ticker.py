"""Looks when the next tick of a schedule is due. In every worker: no single process has to live for schedules."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from limpet.core.errors import UsageError
from limpet.core.schedules.schedule import Schedule
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.ticks import Ticks
from limpet.runtime.timetable import Entry, Timetable
from limpet.stores.asking import engine_now_ms

LAG_MS: Final = (50, 250)  # who lost the last race looks so much later, when the work is usually done
PUT_OFF_MS: Final = 5_000  # after a refusal, such as that of a draining queue


class Ticker(Part):
    """Plans by the engine's clock, so that nothing fires early whatever the clock of this machine shows.

    Any number of tickers may plan the same tick: who moves the schedule's mark to it fires it. `clock` is for tests
    that hold the time.
    """

    name = "ticker"

    def __init__(
        self,
        store: PatientStore,
        code: Sequence[Schedule],
        tasks: Mapping[str, TaskSpec],
        rng: random.Random,
        *,
        look_ms: int = 1_000,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._rng = rng
        self._look_ms = look_ms
        self._clock = clock
        self._timetable = Timetable(store.store, code, tasks)
        self._ticks = Ticks(store.store, lambda: None if clock is None else clock())
        self._quick = True  # the last race was not lost
        self._refused: dict[str, str] = {}  # why, by schedule: told once

    async def live(self, ready: Callable[[], None]) -> None:
        ready()
        while True:
            wait_ms = await self._store.ask("schedules", self.look)
            await asyncio.sleep(wait_ms / 1000)

    async def look(self) -> float:
        """Fire what is due; in how many milliseconds to look again, at the latest."""
        pause_ms = self._look_ms * self._rng.uniform(0.75, 1.25)
        # The time comes first: whoever changes a schedule after this moment keeps ticks up to it from firing.
        now_ms = await self._now_ms() if self._timetable.needs_time else None
        if await self._timetable.is_stale():
            await self._timetable.read(now_ms)
        if now_ms is None:
            return 1.0 if self._timetable.needs_time else pause_ms
        due = [entry for entry in self._timetable.entries.values() if entry.look_at_ms <= now_ms]
        if due and not self._quick:
            await self._timetable.see_marks(due)  # what others have done need not be tried
        self._rng.shuffle(due)  # of many that are due at once, every ticker finds some that are still to be done
        for entry in due:
            await self._try(entry, now_ms)
        next_at_ms = min((entry.look_at_ms for entry in self._timetable.entries.values()), default=math.inf)
        return min(pause_ms, max(1.0, next_at_ms - now_ms))

    async def _try(self, entry: Entry, now_ms: int) -> None:
        """Carry out the plan of one schedule; what is refused of it is told, and no other schedule suffers."""
        name = entry.schedule.name
        try:
            await self._carry_out(entry, now_ms)
            self._refused.pop(name, None)
        except UsageError as refused:
            entry.look_at_ms = now_ms + PUT_OFF_MS
            if self._refused.get(name) != refused.message:
                self._refused[name] = refused.message
                worker_log(logging.WARNING, "tick refused, will be tried again", schedule=name, why=refused)

    async def _carry_out(self, entry: Entry, now_ms: int) -> None:
        planned_ms = now_ms - entry.behind_ms
        plan = entry.schedule.plan(entry.last_at_ms, planned_ms)
        if plan.decided_at_ms is not None:
            self._quick = await self._ticks.carry_out(entry.schedule, entry.spec, plan, now_ms)
            if self._quick:
                entry.last_at_ms = plan.decided_at_ms
            else:
                await self._timetable.see_marks(self._timetable.entries.values())
                plan = entry.schedule.plan(entry.last_at_ms, planned_ms)
        if plan.decided_at_ms is not None and not self._quick:
            entry.look_at_ms = now_ms  # the rest of it, at the next look
        elif plan.wake_at_ms is None:
            entry.look_at_ms = math.inf
        else:
            lag_ms = 0.0 if self._quick else self._rng.uniform(*LAG_MS)
            entry.look_at_ms = plan.wake_at_ms + entry.behind_ms + lag_ms

    async def _now_ms(self) -> int:
        return await engine_now_ms(self._store.store) if self._clock is None else self._clock()
