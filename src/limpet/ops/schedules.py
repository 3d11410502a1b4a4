"""Runs what people ask of schedules: look, add, change, pause, run now, run again for a range of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import EllipsisType
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Raw
from msgspec.structs import asdict, replace

from limpet.core.errors import InvalidOption, UsageError
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued
from limpet.core.records.record import moment
from limpet.core.records.schedule import BackfillReport, NextRun, RemovedSchedule, ScheduleDetail, ScheduleRecord
from limpet.core.schedules.declared import returned
from limpet.core.schedules.history import remembered
from limpet.core.schedules.policy import Overlap, TickPolicy
from limpet.core.schedules.rule import AnyRule
from limpet.core.schedules.run import check_fits
from limpet.core.schedules.schedule import REVISION, Schedule, Unreadable, checked_options, removal, source_of
from limpet.core.schedules.when import When
from limpet.core.tasks import declaration
from limpet.core.tasks.codec import canonical
from limpet.core.tasks.declaration import read_declaration
from limpet.core.tasks.naming import did_you_mean
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import Duration, instant_ms, iso
from limpet.core.text.storable import checked_text
from limpet.ops.bulk import Decision, Progress
from limpet.ops.calendar import Calendar, recent_ticks
from limpet.ops.names import UnknownName
from limpet.ops.schedule_runs import At, backfill, run_now, ticks_within
from limpet.stores.base import Store

H = TypeVar("H")


class Named(Protocol):
    """A task as code has it."""

    @property
    def name(self) -> str: ...


TRIES: Final = 20  # to write over what others are changing too


class ScheduleExists(UsageError):
    """A schedule of that name is stored already."""

    code = "schedule_exists"


class ScheduleDeclared(UsageError):
    """The code of live workers declares this schedule: it would come back."""

    code = "schedule_declared"


class ScheduleContended(UsageError):
    """Others change the schedule all the time."""

    code = "schedule_contended"


class Schedules(Generic[H]):
    """Asks about schedules and changes them, in the name of `actor`; every change leaves a line in the audit log.

    All workers see a change within about a second; of a change that stops ticks (a pause, a removal, another rule) no
    tick comes through once it is answered. `handle` makes what `run_now` answers.
    """

    def __init__(
        self,
        store: Store,
        actor: str,
        *,
        handle: Callable[[Enqueued, str], H],
        tasks: Mapping[str, TaskSpec] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.store = store
        self.actor = checked_text(actor, what="actor")
        self._handle = handle
        self._tasks = {} if tasks is None else tasks
        self._clock = clock

    # -- asking

    async def list(self) -> Sequence[ScheduleRecord]:
        """Every schedule, by name."""
        calendar = await self.calendar()
        return [calendar.view(name) for name in sorted(calendar.found)]

    async def get(self, name: str) -> ScheduleDetail:
        """One schedule, with what became of its last ticks."""
        calendar = await self.calendar()
        found, view = _known(calendar, name), calendar.view(name)
        ticks = () if isinstance(found, Unreadable) else await recent_ticks(self.store, calendar, found)
        return ScheduleDetail(**asdict(view), ticks=ticks)

    async def next(self, n: int = 5, *, name: str | None = None) -> Sequence[NextRun]:
        """The next `n` runs of one schedule, or of all of them together."""
        calendar = await self.calendar()
        if name is not None:
            _known(calendar, name)
        return calendar.next_runs(sorted(calendar.found) if name is None else [name], n)

    async def calendar(self) -> Calendar:
        """Everything that is stored about schedules now."""
        return await Calendar.read(self.store, (await self._at()).now_ms)

    # -- changing

    async def add(
        self,
        when: When,
        task: str | Named,
        args: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        paused: bool = False,
        reason: str = "",
        **options: Any,
    ) -> ScheduleRecord:
        """Store a new schedule, which ticks from now on. A name that is taken is ScheduleExists."""
        checked_text(reason, what="reason")
        task = task if isinstance(task, str) else task.name
        spec = await self._spec(task)
        new = Schedule.declare(
            when, task=task, name=name, args=_encoded(spec, args or {}), options=options, source="runtime"
        )
        check_fits(new, spec)
        calendar = await self.calendar()
        new = _checked(new.replacing(None, calendar.now_ms), calendar.now_ms)
        new = new.pause(self.actor, reason) if paused else new
        taken = new.name in calendar.found
        version = calendar.controls[new.name].version if new.name in calendar.controls else 0
        if taken or await self.store.put_control(new.control(), expect=version) is None:
            fix = "change it, or give the new one another name"
            raise ScheduleExists(f"there is a schedule {new.name!r} already", fix=fix)
        await self.store.put_control(REVISION)
        return await self._told("add", new.name, reason, task=task, when=new.rule.describe())

    async def change(
        self,
        name: str,
        when: When | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        rule: AnyRule | None = None,
        overlap: Overlap | str | None = None,
        catch_up: str | int | None = None,
        jitter: Duration | None = None,
        expires_in: Duration | EllipsisType | None = ...,
        reason: str = "",
        **options: Any,
    ) -> ScheduleRecord:
        """Change some of a schedule; the rest stays. Another rule ticks from now on.

        `when` says both when it ticks and what becomes of ticks, `rule` the former alone. What code declares stays
        changed until the code says something new, or `reset` gives it back.
        """
        checked_text(reason, what="reason")
        said = (when, args, rule, overlap, catch_up, jitter, None if expires_in is ... else True, options or None)

        async def changed(known: Schedule, now_ms: int) -> Schedule:
            if all(each is None for each in said):
                fix = "say when, overlap, args or queue"
                raise InvalidOption(f"what is to change about schedule {name!r}?", fix=fix)
            spec = await self._spec(known.task)
            old = known.policy if when is None else when.policy
            kept_s = None if old.expires_ms is None else old.expires_ms / 1000
            policy = TickPolicy.of(
                old.overlap if overlap is None else overlap,
                old.catch_up if catch_up is None else catch_up,
                old.jitter_ms / 1000 if jitter is None else jitter,
                kept_s if isinstance(expires_in, EllipsisType) else expires_in,
            )
            new = known.changed(
                self.actor,
                now_ms,
                rule=rule or (known.rule if when is None else when.rule),
                policy=policy,
                args=known.args if args is None else Raw(canonical(_encoded(spec, args))),
                options={**known.options, **checked_options(options)},
            )
            check_fits(new, spec)
            return _checked(new, now_ms)

        before, after = await self._write(name, changed)
        if before.rule != after.rule:
            await self._fence(name)
        return await self._told("change", name, reason, when=after.rule.describe())

    async def remove(self, name: str, *, reason: str = "") -> RemovedSchedule:
        """Remove a schedule; runs that are stored stay. One that live code declares is ScheduleDeclared."""
        checked_text(reason, what="reason")
        calendar = await self.calendar()
        known = _known(calendar, name)
        if isinstance(known, Schedule) and known.source == "code" and name in calendar.declared:
            raise ScheduleDeclared(
                f"the code of live workers declares schedule {name!r}, which would bring it back",
                fix=f"take it out of the code and deploy, or: limpet schedules pause {name}",
            )
        if await self.store.put_control(removal(name), expect=calendar.controls[name].version) is None:
            raise _contended(name)
        await self.store.put_control(REVISION)
        await self._fence(name)
        await self.store.put_control(remembered(name, ()))
        await self._log("remove", name, reason)
        return RemovedSchedule(schedule=name)

    async def pause(self, name: str, *, reason: str = "") -> ScheduleRecord:
        """Let no tick fire. Runs continue, and `run_now` works. Without a reason an existing pause keeps its own."""
        checked_text(reason, what="reason")

        async def paused(known: Schedule, now_ms: int) -> Schedule:
            return known if known.paused and not reason else known.pause(self.actor, reason)

        await self._write(name, paused)
        await self._fence(name)
        return await self._told("pause", name, reason)

    async def resume(self, name: str, *, reason: str = "") -> ScheduleRecord:
        """Let ticks fire from now on; those of the pause were not missed and are not caught up."""
        checked_text(reason, what="reason")

        async def resumed(known: Schedule, now_ms: int) -> Schedule:
            return known.resume(now_ms) if known.paused else known

        await self._write(name, resumed)
        return await self._told("resume", name, reason)

    async def reset(self, name: str, *, reason: str = "") -> ScheduleRecord:
        """Give a schedule that was changed by hand back to the code: live workers store what they declare."""
        checked_text(reason, what="reason")

        async def given_back(known: Schedule, now_ms: int) -> Schedule:
            if known.source != "code":
                raise InvalidOption(f"schedule {name!r} was not declared by code", fix="change it as you want it")
            return returned(known) if known.changed_by else known

        await self._write(name, given_back)
        return await self._told("reset", name, reason)

    # -- running

    async def run_now(self, name: str, *, reason: str = "") -> H:
        """Ask for one run now, whatever the time. It heeds `overlap` as a tick does.

        With "skip" a run that is not finished is answered in its place; with "queue_one" and two of them it is
        ScheduleBusy.
        """
        checked_text(reason, what="reason")
        schedule = _readable(await self.calendar(), name)
        answer = await run_now(self.store, schedule, await self._spec(schedule.task), self.actor, await self._at())
        await self._log("run", name, reason, job=id_text(answer.id), existing=answer.existing)
        return self._handle(answer, schedule.task)

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime | None = None,
        *,
        again: bool = False,
        dry_run: bool = False,
        reason: str = "",
        progress: Progress | None = None,
    ) -> BackfillReport:
        """Ask for a run of every tick from `start` to `end` (to now, when that is earlier), both included.

        A tick whose job is stored is left out, so a backfill that was broken off is simply repeated; `again=True` runs
        those too. Runs come one after the other, or side by side with overlap "allow"; ticks of the present do not
        wait for them.
        """
        checked_text(reason, what="reason")
        schedule, at = _readable(await self.calendar(), name), await self._at()
        first_ms, end_ms = instant_ms(start, what="start"), at.now_ms if end is None else instant_ms(end, what="end")
        if end is not None and end_ms < first_ms:
            raise InvalidOption(f"the range from {iso(first_ms)} ends before, at {iso(end_ms)}", fix="swap the two")
        ticks = ticks_within(schedule, first_ms, min(at.now_ms, end_ms))
        first, last = (moment(ticks[0]), moment(ticks[-1])) if ticks else (None, None)
        report = BackfillReport(schedule=name, ticks=len(ticks), first_at=first, last_at=last, dry_run=dry_run)
        if dry_run or not ticks:
            return report
        done = enqueued = 0
        spec = await self._spec(schedule.task)
        async for chunk, new in backfill(self.store, schedule, spec, ticks, again, at):
            done, enqueued = done + len(chunk), enqueued + new
            await self._log("backfill", name, reason, first=iso(chunk[0]), last=iso(chunk[-1]), enqueued=new)
            if progress is not None:
                progress(done, len(ticks))
        return replace(report, enqueued=enqueued, existing=len(ticks) - enqueued)

    # -- the store

    async def _write(
        self, name: str, change: Callable[[Schedule, int], Awaitable[Schedule]]
    ) -> tuple[Schedule, Schedule]:
        """Change one schedule, over the version that was seen; what it was before, and what it is now."""
        for _ in range(TRIES):
            calendar = await self.calendar()
            known = _readable(calendar, name)
            new = await change(known, calendar.now_ms)
            if new == known:
                return known, new
            if await self.store.put_control(new.control(), expect=calendar.controls[name].version) is not None:
                await self.store.put_control(REVISION)
                return known, new
        raise _contended(name)

    async def _fence(self, name: str) -> None:
        """A worker that has planned ticks up to this moment finds them decided."""
        at = await self._at()
        await self.store.relay(source_of(name), at.now_ms, (), now_ms=at.asked_ms)

    async def _spec(self, task: str) -> TaskSpec:
        """The task as this program has it, else as a worker published it, else as a name."""
        if task in self._tasks:
            return self._tasks[task]
        for control in await self.store.controls(declaration.KIND):
            found = read_declaration(control) if control.name == task else None
            if found is not None:
                return found.spec()
        return TaskSpec.named(task)

    async def _told(self, verb: str, name: str, reason: str, **facts: object) -> ScheduleRecord:
        await self._log(verb, name, reason, **facts)
        return (await self.calendar()).view(name)

    async def _log(self, verb: str, name: str, reason: str, **facts: object) -> None:
        decision = Decision(f"schedule.{verb}", self.actor, reason, {"schedule": name, **facts})
        await self.store.append([decision.entry(None if self._clock is None else self._clock())])

    async def _at(self) -> At:
        if self._clock is None:
            return At(await self.store.now(), None)
        return At(self._clock(), self._clock())


def _known(calendar: Calendar, name: str) -> Schedule | Unreadable:
    if name in calendar.found:
        return calendar.found[name]
    raise UnknownName(f"no schedule is called {name!r}", fix=did_you_mean(name, calendar.found))


def _readable(calendar: Calendar, name: str) -> Schedule:
    found = _known(calendar, name)
    if isinstance(found, Schedule):
        return found
    raise InvalidOption(f"schedule {name!r} cannot be read here: {found.why}", fix="upgrade, or remove it")


def _checked(schedule: Schedule, now_ms: int) -> Schedule:
    """The same, unless it would never run."""
    if schedule.rule.after(now_ms) is None:
        raise InvalidOption(f"schedule {schedule.name!r} would never run", fix="choose an instant that is to come")
    return schedule


def _encoded(spec: TaskSpec, args: Mapping[str, Any]) -> bytes:
    """The stored form of arguments, checked against the task where it is known."""
    return spec.signature.encode(spec.signature.bind_named(args), max_bytes=spec.max_payload_bytes)[0]


def _contended(name: str) -> ScheduleContended:
    return ScheduleContended(f"others are changing schedule {name!r}", fix="try again")
