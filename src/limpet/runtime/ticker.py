"""Fires the ticks of schedules when they are due. In every worker: no single process has to live for schedules.

The ticker looks what is due and plans it; `Ticks` carries a plan out, each tick fired or dropped once, whichever worker
comes first.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from limpet.core.errors import InvalidTask, UsageError
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.view import JobView
from limpet.core.schedules.history import Tick, Why, kind_of, read_ticks, remembered
from limpet.core.schedules.plan import Firing, Plan
from limpet.core.schedules.policy import Overlap
from limpet.core.schedules.run import Run, Verdict, job_of, key_of, live_runs, verdict
from limpet.core.schedules.schedule import Schedule, source_of
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import iso
from limpet.runtime.log import worker_log
from limpet.runtime.part import Part
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.timetable import Entry, Timetable
from limpet.stores.asking import find_all, refuse_draining
from limpet.stores.base import Store

LAG_MS: Final = (50, 250)  # who lost the last race looks so much later, when the work is usually done
PUT_OFF_MS: Final = 5_000  # after a refusal, such as that of a draining queue
REMEMBERING: Final = 3  # tries to write the history, which others may be writing too


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
        # The time comes first: a change of a schedule after this moment keeps ticks up to it from firing.
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
                worker_log(logging.WARNING, "tick refused, will be tried again", schedule=name, reason=refused)

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
        return await self._store.store.now() if self._clock is None else self._clock()


class Done(Struct):
    """How far a plan was carried out."""

    whole: bool  # False: another worker has decided one of its ticks
    ticks: list[Tick]  # what was decided here


class Ticks:
    """Fires and drops ticks. The mark of the schedule moves to a tick in the write that enqueues its job.

    `asked_ms` is the instant to pass to the store; None leaves it to the engine's clock.
    """

    def __init__(self, store: Store, asked_ms: Callable[[], int | None]) -> None:
        self._store = store
        self._asked_ms = asked_ms
        self._kept: dict[str, tuple[int, list[Tick]]] = {}  # what is remembered of ticks, and its version

    async def carry_out(self, schedule: Schedule, spec: TaskSpec, plan: Plan, now_ms: int) -> bool:
        """Decide each tick of a plan, in order; False when another worker has decided one of them."""
        done = await self._decide_all(schedule, spec, plan, now_ms)
        for tick in done.ticks:
            level = logging.DEBUG if tick.fired else logging.INFO
            what = {"why": tick.why, "count": tick.count} if tick.why else {}
            event = "tick fired" if tick.fired else "tick dropped"
            worker_log(level, event, schedule=schedule.name, tick=iso(tick.at_ms), **what)
        if done.ticks:
            await self._remember(schedule.name, done.ticks)
        return done.whole

    async def _decide_all(self, schedule: Schedule, spec: TaskSpec, plan: Plan, now_ms: int) -> Done:
        dropped, firings = _dropped(schedule, plan, now_ms)
        if not firings:
            assert plan.decided_at_ms is not None
            is_ours = await self._relay(schedule, plan.decided_at_ms) is not None
            return Done(is_ours, dropped if is_ours else [])
        found = verdict(schedule.policy.overlap, await self._live(schedule, firings[0]))
        ticks: list[Tick] = []
        for firing in firings:
            tick = await self._decide(schedule, spec, firing, found, now_ms, is_last=firing is firings[-1])
            if tick is None:
                return Done(False, [*dropped, *ticks] if ticks else [])
            ticks.append(tick)
            if tick.fired and schedule.policy.overlap is not Overlap.allow:
                found = Verdict(after=(firing.job,))  # ticks that fire together run one after the other
        return Done(True, [*dropped, *ticks])

    async def _decide(
        self, schedule: Schedule, spec: TaskSpec, firing: Firing, found: Verdict, now_ms: int, *, is_last: bool
    ) -> Tick | None:
        """Fire one tick, or drop it because of earlier runs; None when it was decided before."""
        tick_at_ms = firing.tick_at_ms
        if not found.fires:
            dropped = Tick(tick_at_ms, now_ms, "overlap", beside=id_text(found.after[0]))
            return None if await self._relay(schedule, tick_at_ms) is None else dropped
        expires_at_ms = firing.expires_at_ms
        run = Run(
            id=firing.job,
            tick_at_ms=tick_at_ms,
            due_at_ms=firing.due_at_ms,
            expires_ms=None if expires_at_ms is None else max(1, expires_at_ms - now_ms),
            after=found.after,
            holds_key=is_last,
        )
        job, rules = _job(schedule, spec, run)
        if found.cancels:
            await refuse_draining(self._store, job.lane)  # nothing is cancelled for a run that cannot be
            reason = f"the schedule's tick at {iso(tick_at_ms)} took its place"
            await self._store.cancel(found.cancels, reason, now_ms=self._asked_ms())
        answers = await self._relay(schedule, tick_at_ms, [job], rules)
        if answers is None:
            return None
        if answers[0].id == job.id:
            return Tick(tick_at_ms, now_ms)
        return Tick(tick_at_ms, now_ms, _in_the_way(schedule, job), beside=id_text(answers[0].id))

    async def _live(self, schedule: Schedule, first: Firing) -> list[JobView]:
        """Runs of the schedule that are not finished. Another ticker may have fired this very tick, or a later one."""
        overlap = schedule.policy.overlap
        if overlap is Overlap.allow:
            return []
        found = await find_all(self._store, live_runs(schedule), now_ms=self._asked_ms())
        runs = [view for view in found if view.unique == key_of(schedule.name) and view.id != first.job]
        return [view for view in runs if view.id < first.job] if overlap is Overlap.cancel_running else runs

    async def _relay(
        self, schedule: Schedule, tick_at_ms: int, jobs: Sequence[Job] = (), rules: Sequence[GateRule] = ()
    ) -> list[Enqueued] | None:
        source, now_ms = source_of(schedule.name), self._asked_ms()
        # A tick comes once: whether its queue is full or not, its job is stored.
        return await self._store.relay(source, tick_at_ms, jobs, rules, always=True, now_ms=now_ms)

    async def _remember(self, name: str, ticks: Sequence[Tick]) -> None:
        """Keep what became of the ticks, for people. A crash just before this leaves a gap that the jobs fill."""
        for _ in range(REMEMBERING):
            if name not in self._kept:
                controls = await self._store.controls(kind_of(name))
                self._kept[name] = max((each.version for each in controls), default=0), read_ticks(controls)
            version, known = self._kept.pop(name)
            control = remembered(name, [*known, *ticks])
            written = await self._store.put_control(control, expect=version)
            if written is not None:
                self._kept[name] = written.version, read_ticks([control])
                return


def _dropped(schedule: Schedule, plan: Plan, now_ms: int) -> tuple[list[Tick], Sequence[Firing]]:
    """The ticks of a plan that are dropped whatever runs, and those that are not."""
    ticks, firings = [], plan.fire
    if plan.dropped_at_ms is not None:
        ticks.append(Tick(plan.dropped_at_ms, now_ms, plan.dropped_why, plan.dropped))
    if schedule.policy.overlap is Overlap.cancel_running:
        # Each would cancel the one before, so that only the last would run.
        ticks += [Tick(firing.tick_at_ms, now_ms, "overlap") for firing in firings[:-1]]
        firings = firings[-1:]
    return ticks, firings


def _job(schedule: Schedule, spec: TaskSpec, run: Run) -> tuple[Job, Sequence[GateRule]]:
    try:
        return job_of(schedule, spec, run)
    except UsageError:
        raise
    except Exception as error:  # the task's own functions (of a tenant, a key, a cost) are called here
        raise InvalidTask(f"{type(error).__name__} in a function of task {spec.name}: {error}") from error


def _in_the_way(schedule: Schedule, job: Job) -> Why:
    """What a duplicate means: the schedule's own key, or that of its task."""
    assert job.unique is not None
    return "overlap" if job.unique.key == key_of(schedule.name) else "unique"
