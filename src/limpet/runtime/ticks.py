"""Carries out what was planned about the ticks of one schedule: each is fired or dropped once, whoever else tries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
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
from limpet.stores.asking import find_all, refuse_draining
from limpet.stores.base import Store

REMEMBERING: Final = 3  # tries to write the history, which others may be writing too


class Done(Struct):
    """How far a plan was carried out."""

    whole: bool  # False: somebody else has decided one of its ticks
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
        """Decide each tick of a plan, in order; False when somebody else has decided one of them."""
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
    except Exception as error:  # the task's own functions (of a group, a key, a cost) are called here
        raise InvalidTask(f"{type(error).__name__} in a function of task {spec.name}: {error}") from error


def _in_the_way(schedule: Schedule, job: Job) -> Why:
    """What a duplicate means: the schedule's own key, or that of its task."""
    assert job.unique is not None
    return "overlap" if job.unique.key == key_of(schedule.name) else "unique"
