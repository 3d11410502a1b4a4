"""Reads schedules as they are stored: what each does, when it runs next, and why it does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import islice, repeat
from typing import Final

import msgspec

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.view import Control, Finding
from limpet.core.records.schedule import NextRun, ScheduleRecord, ScheduleState, TickRecord
from limpet.core.redaction.redaction import Redaction
from limpet.core.schedules import schedule_text
from limpet.core.schedules.declared import Absent, absent, declared_by, tickers
from limpet.core.schedules.history import Tick, kind_of, read_ticks
from limpet.core.schedules.plan import ON_TIME_MS, tick_job
from limpet.core.schedules.policy import catch_up_text
from limpet.core.schedules.rule import AnyRule, CronRule
from limpet.core.schedules.schedule import KIND, Schedule, Unreadable, read_schedule, source_of
from limpet.core.schedules.zone import Zone
from limpet.core.tasks.codec import decode_json
from limpet.core.text.duration import text_of_ms
from limpet.ops.redaction import redaction_of
from limpet.stores.base import MARK, Store

SHOWN: Final = 5  # next runs of a schedule
LOOKED_BACK: Final = 20  # ticks whose jobs are looked for, in case the record that they fired was not written


@dataclass(frozen=True)
class Calendar:
    """Every stored schedule at one instant, with what is needed to say how it stands."""

    now_ms: int
    controls: Mapping[str, Control]
    found: Mapping[str, Schedule | Unreadable]
    marks: Mapping[str, int]
    declared: Mapping[str, set[str]]  # by live workers: fingerprints by name
    tickers: int
    tasks: frozenset[str] | None  # that live workers have; None when one takes any
    redaction: Redaction

    @classmethod
    async def read(cls, store: Store, now_ms: int) -> Calendar:
        """Read all of it."""
        controls = {control.name: control for control in await store.controls(KIND)}
        read = {name: read_schedule(control) for name, control in controls.items()}
        sessions = await store.sessions()
        return cls(
            now_ms=now_ms,
            controls=controls,
            found={name: each for name, each in read.items() if each is not None},
            marks={control.name: int(control.value) for control in await store.controls(MARK)},
            declared=declared_by(sessions),
            tickers=tickers(sessions),
            tasks=_tasks(sessions),
            redaction=await redaction_of(store),
        )

    @property
    def schedules(self) -> list[Schedule]:
        """The schedules that this release can read, by name."""
        return [each for _, each in sorted(self.found.items()) if isinstance(each, Schedule)]

    def mark(self, name: str) -> int | None:
        """How far a schedule is decided."""
        return self.marks.get(source_of(name))

    def view(self, name: str) -> ScheduleRecord:
        """How one schedule stands."""
        schedule = self.found[name]
        if isinstance(schedule, Unreadable):
            note = f"this release cannot read it: {schedule.why}"
            return ScheduleRecord(name=name, state="unreadable", note=note, fix="upgrade, or remove it")
        zone, policy = zone_of(schedule.rule), schedule.policy
        state, note, fix = self._standing(schedule)
        upcoming = list(islice(self.upcoming(schedule), SHOWN)) if state == "on" else []
        last, hidden = self._last(schedule), self.redaction.of_task(schedule.task)
        args, options = hidden.call(decode_json(bytes(schedule.args)), schedule.options)
        return ScheduleRecord(
            name=name,
            state=state,
            task=schedule.task,
            when=schedule.rule.describe(),
            rule=msgspec.to_builtins(schedule.rule),
            args=args,
            options=options,
            overlap=policy.overlap.value,
            catch_up=catch_up_text(policy.catch_up),
            jitter_s=policy.jitter_ms / 1000,
            expires_in_s=None if policy.expires_ms is None else policy.expires_ms / 1000,
            source=schedule.source,
            paused_by=schedule.paused_by or None,
            paused_reason=schedule.paused_reason or None,
            changed_by=schedule.changed_by or None,
            last_at=None if last is None else zone.moment(last),
            next_at=tuple(zone.moment(at) for at in upcoming),
            note=note or None,
            fix=fix or None,
        )

    def upcoming(self, schedule: Schedule) -> Iterator[int]:
        """The ticks that are not decided yet and not in the past."""
        return schedule.rule.iterate(max(self.now_ms, self.mark(schedule.name) or 0, schedule.since_at_ms))

    def next_runs(self, names: list[str], count: int) -> list[NextRun]:
        """The next runs of these schedules together, in order."""
        found = [self.found[name] for name in names]
        lines = [
            zip(self.upcoming(schedule), repeat(schedule))  # as far as it is looked at: there may be thousands
            for schedule in found
            if isinstance(schedule, Schedule) and self._standing(schedule)[0] == "on"
        ]
        return [
            NextRun(
                at=zone.moment(at),
                schedule=schedule.name,
                task=schedule.task,
                in_words=schedule_text.of_tick(at, zone, self.now_ms),
            )
            for at, schedule in islice(merge(*lines, key=lambda each: each[0]), count)
            for zone in [zone_of(schedule.rule)]
        ]

    def findings(self) -> Iterator[Finding]:
        """What deserves a person's attention."""
        if not self.found:
            return
        quiet = 0
        for name in sorted(self.found):
            finding = self._finding(self.view(name))
            quiet += finding is None
            if finding is not None:
                yield finding
        if quiet:
            yield Finding("ok", "schedules", f"{quiet} schedule{'s' if quiet > 1 else ''} in order")

    def _finding(self, view: ScheduleRecord) -> Finding | None:
        words_of = self.declared.get(view.name, set())
        if view.state in ("absent", "unreadable"):
            return Finding("warning", f"schedule_{view.state}", view.note or "", view.fix or "")
        if len(words_of) > 1:
            text = f"live workers declare schedule {view.name} in {len(words_of)} ways; the newest is in force"
            fix = "fine during a deployment; two apps of one namespace need names of their own"
            return Finding("warning", "schedule_versions", text, fix)
        schedule = self.found[view.name]
        if view.state == "on" and isinstance(schedule, Schedule) and self._ahead_until_ms(schedule) is not None:
            return Finding("warning", "schedule_ahead", f"schedule {view.name}: {view.note}", view.fix or "")
        if view.state == "on" and self.tickers and not self._is_served(view.task):
            return Finding("warning", "schedule_unserved", f"schedule {view.name}: {view.note}", view.fix or "")
        if isinstance(schedule, Schedule):
            late_ms = self.late_ms(schedule)
            if late_ms is not None:
                text = f"schedule {view.name} should have fired {text_of_ms(late_ms)} ago, and did not"
                fix = "look for 'tick refused' in the workers' logs" if self.tickers else view.fix or ""
                return Finding("warning", "schedule_overdue", text, fix)
        return None

    def late_ms(self, schedule: Schedule) -> int | None:
        """How long ago the first tick was due that should have been decided by now; None: none is late."""
        if self._standing(schedule)[0] != "on":
            return None
        mark = self.mark(schedule.name)
        if schedule.plan(mark, self.now_ms - ON_TIME_MS).decided_at_ms is None:
            return None
        first = next(schedule.rule.iterate(max(mark or 0, schedule.since_at_ms)), self.now_ms)
        return self.now_ms - first

    def _standing(self, schedule: Schedule) -> tuple[ScheduleState, str, str]:
        if schedule.paused:
            why = f": {schedule.paused_reason}" if schedule.paused_reason else ""
            note = f"paused by {schedule.paused_by or 'someone'}{why}"
            return "paused", note, f"limpet schedules resume {schedule.name}"
        if self.tickers and (gone := self._absent(schedule)) is not None:
            return "absent", str(gone), gone.fix
        if next(self.upcoming(schedule), None) is None:
            return "ended", "it has no run left", f"limpet schedules remove {schedule.name}"
        if not self.tickers:
            return "on", "no worker is alive, so it does not run", "start one: limpet worker MODULE:APP"
        if (until_ms := self._ahead_until_ms(schedule)) is not None:
            until = schedule_text.of_instant(until_ms, zone_of(schedule.rule))
            fix = "wait until then, or give it another name: ticks that are decided stay so"
            return "on", f"the engine's clock was put back, and ticks until {until} are decided", fix
        if not self._is_served(schedule.task):
            fix = f"deploy the code that has it, or: limpet schedules remove {schedule.name}"
            return "on", f"no live worker knows task {schedule.task}, so its jobs wait", fix
        if schedule.changed_by:
            fix = f"limpet schedules reset {schedule.name} gives it back to the code"
            return "on", f"changed by {schedule.changed_by}; the code says otherwise", fix
        return "on", "", ""

    def _ahead_until_ms(self, schedule: Schedule) -> int | None:
        """Until when no tick can fire although it is to come, because the clock was wrong when the last one did."""
        until_ms = max(self.mark(schedule.name) or 0, schedule.since_at_ms)
        return until_ms if until_ms > self.now_ms + ON_TIME_MS else None

    def _is_served(self, task: str) -> bool:
        return self.tasks is None or task in self.tasks

    def _absent(self, schedule: Schedule) -> Absent | None:
        return next(iter(absent([schedule], self.declared)), None)

    def _last(self, schedule: Schedule) -> int | None:
        mark = self.mark(schedule.name)
        return None if mark is None else schedule.rule.latest(schedule.since_at_ms, mark)


def zone_of(rule: AnyRule) -> Zone:
    """Where the ticks of a rule are told."""
    return Zone(rule.tz if isinstance(rule, CronRule) else "UTC")


def _tasks(sessions: Iterable[SessionView]) -> frozenset[str] | None:
    known: set[str] = set()
    for session in sessions:
        if session.serves.tasks is None:
            return None
        known.update(session.serves.tasks)
    return frozenset(known)


async def recent_ticks(store: Store, calendar: Calendar, schedule: Schedule) -> tuple[TickRecord, ...]:
    """What became of the last ticks, newest first: as it was written down, and as their jobs show."""
    kept = {tick.at_ms: tick for tick in read_ticks(await store.controls(kind_of(schedule.name)))}
    at_ms = calendar.mark(schedule.name)
    for _ in range(LOOKED_BACK):  # a worker may die after it fired a tick and before it recorded that
        at_ms = None if at_ms is None else schedule.rule.latest(schedule.since_at_ms, at_ms)
        if at_ms is None:
            break
        kept.setdefault(at_ms, Tick(at_ms, at_ms, "missed", count=0))
        at_ms -= 1
    ticks = sorted(kept.values(), key=lambda tick: tick.at_ms, reverse=True)
    ids = [tick_job(schedule.name, tick.at_ms) for tick in ticks]
    zone, shown = zone_of(schedule.rule), []
    for tick, id, job in zip(ticks, ids, await store.get(ids), strict=True):
        if not tick.count and job is None:
            continue  # dropped or finished long ago: unknown
        fired = tick.fired or not tick.count
        shown.append(
            TickRecord(
                at=zone.moment(tick.at_ms),
                fired=fired,
                why=None if fired else tick.why or None,
                count=max(1, tick.count),
                job=id_text(id) if fired else tick.beside or None,
                state=None if job is None or not fired else job.state.value,
                late_s=max(0, tick.decided_at_ms - tick.at_ms) / 1000,
            )
        )
    return tuple(shown)
