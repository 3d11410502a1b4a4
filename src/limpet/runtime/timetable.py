"""Remembers which schedules the store holds and how far each has ticked, and stores what the code declares."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from limpet.core.jobs.view import Control
from limpet.core.schedules.declared import absent, declared_by, redeclared
from limpet.core.schedules.schedule import KIND, REVISION, Schedule, Unreadable, read_schedule, source_of
from limpet.core.tasks import declaration
from limpet.core.tasks.declaration import read_declaration
from limpet.core.tasks.task import TaskSpec
from limpet.runtime.log import worker_log
from limpet.stores.base import MARK, Store

REREAD_S: Final = 30.0  # everything is read again, for changes whose author died before saying so, and for rollbacks
STRANGER_MS: Final = 2_000  # a worker without a task's code leaves its ticks to workers that have it, for this long
ROUNDS: Final = 5  # of declaring, when other workers declare at the same moment; the rest is done next time


class Entry(Struct):
    """One schedule that this worker fires."""

    schedule: Schedule
    spec: TaskSpec
    last_at_ms: int | None  # the newest tick that is known to be decided; the store may be further
    behind_ms: int = 0  # so much later than others
    look_at_ms: float = 0  # when to plan next; a schedule that was just read has no plan yet


class Timetable:
    """The schedules of one worker: those that its code declares, and those that were added at run time."""

    def __init__(self, store: Store, code: Sequence[Schedule], tasks: Mapping[str, TaskSpec]) -> None:
        self.entries: dict[str, Entry] = {}
        self._store = store
        self._code = {schedule.name: schedule for schedule in code}
        self._tasks = tasks
        self._revision = -1
        self._read_at_s = 0.0
        self._known: dict[str, tuple[Control, Schedule | Unreadable | None]] = {}  # what records were found to say
        self._told: set[str] = set()  # what was logged once is not logged again

    @property
    def needs_time(self) -> bool:
        """False when nothing here depends on it, as in most workers of apps without schedules."""
        return bool(self._code) or any(entry.look_at_ms < math.inf for entry in self.entries.values())

    async def is_stale(self) -> bool:
        """True when a schedule was changed since they were read, or may have been."""
        if asyncio.get_running_loop().time() - self._read_at_s > REREAD_S:
            return True
        return await self._stored_revision() != self._revision

    async def read(self, now_ms: int | None) -> None:
        """Read every schedule, and store what the code declares where its word is the newest."""
        if now_ms is not None:
            await self.declare(now_ms)
        # Asked for first: a change that comes while the records are read is seen by the next look.
        self._revision = await self._stored_revision()
        found = self._readable(await self._store.controls(KIND))
        self._read_at_s = asyncio.get_running_loop().time()
        await self._report(found)
        specs = await self._specs(found)
        before = self.entries
        self.entries = {
            schedule.name: self._entry(schedule, specs[schedule.task])
            for schedule in found
            if schedule.source == "runtime" or schedule.name in self._code
        }
        await self.see_marks([entry for name, entry in self.entries.items() if entry is not before.get(name)])

    def _entry(self, schedule: Schedule, spec: TaskSpec) -> Entry:
        """The entry of a schedule; one that has not changed keeps its plan."""
        known = self.entries.get(schedule.name)
        if known is not None and known.schedule is schedule and known.spec is spec:
            return known
        return Entry(schedule, spec, None, 0 if schedule.task in self._tasks else STRANGER_MS)

    async def see_marks(self, entries: Collection[Entry]) -> None:
        """Find out which ticks are decided, by whomever."""
        if not entries:
            return
        marks = {control.name: int(control.value) for control in await self._store.controls(MARK)}
        for entry in entries:
            entry.last_at_ms = marks.get(source_of(entry.schedule.name))

    # -- what the code declares

    async def declare(self, now_ms: int, *, lives: bool = True) -> None:
        """Store what the code declares where its word is the newest. `lives`: a session of this worker says so too."""
        for _ in range(ROUNDS):
            stored = {control.name: control for control in await self._store.controls(KIND)} if self._code else {}
            if not await self._declare(stored, now_ms, lives):
                return

    async def _declare(self, stored: Mapping[str, Control], now_ms: int, lives: bool) -> bool:
        """Write what is new; True when something was written, by this worker or meanwhile by another."""
        written, fenced = False, []
        for code in self._code.values():
            control = stored.get(code.name, Control(KIND, code.name, b"null"))
            known = self._said(control)
            if isinstance(known, Unreadable):
                continue  # a newer release wrote it
            new = redeclared(code, known, await self._alive(code, known, lives), now_ms, lives=lives)
            if new is None:
                continue
            if await self._store.put_control(new.control(), expect=control.version) is not None:
                worker_log(logging.INFO, "schedule stored", schedule=code.name, when=code.rule.describe())
                if known is not None and known.source == "runtime":
                    was = known.rule.describe()
                    worker_log(logging.WARNING, "schedule replaces one added at run time", schedule=code.name, was=was)
                if known is not None and known.rule != new.rule:
                    fenced.append(code.name)
            written = True
        if written:
            await self._store.put_control(REVISION)
            for name in fenced:
                # A worker that still plans with the old rule finds its ticks decided.
                await self._store.relay(source_of(name), now_ms, ())
        return written

    async def _alive(self, code: Schedule, known: Schedule | None, lives: bool) -> set[str]:
        """What live workers declare under that name, where it matters: the code's word may be the older one."""
        if known is None or code.fingerprint == known.declared or (lives and code.fingerprint not in known.older):
            return set()
        return declared_by(await self._store.sessions()).get(code.name, set())

    async def _report(self, found: Sequence[Schedule]) -> None:
        """Tell what is stored and differs from what live code says."""
        for schedule in found:
            if schedule.name in self._code and schedule.declared != self._code[schedule.name].fingerprint:
                self._tell("another version of the code is in force", schedule=schedule.name)
        if all(schedule.source == "runtime" or schedule.name in self._code for schedule in found):
            return
        declared = declared_by(await self._store.sessions())
        for name, schedule in self._code.items():
            declared.setdefault(name, set()).add(schedule.fingerprint)
        for each in absent(found, declared):
            self._tell(str(each), remove=each.fix)

    # -- reading

    def _said(self, control: Control) -> Schedule | Unreadable | None:
        """What a record says; one that has not changed says it with the same object, whose rule is worked out."""
        known, said = self._known.get(control.name, (None, None))
        if known != control:
            said = read_schedule(control)
            self._known[control.name] = control, said
        return said

    def _readable(self, controls: Iterable[Control]) -> list[Schedule]:
        found = []
        for control in controls:
            schedule = self._said(control)
            if isinstance(schedule, Unreadable):
                self._tell("schedule cannot be read here", schedule=schedule.name, reason=schedule.why)
            elif schedule is not None:
                found.append(schedule)
        return found

    async def _specs(self, found: Sequence[Schedule]) -> dict[str, TaskSpec]:
        """The tasks of the schedules: as this code has them, else as other workers published them."""
        strange = {schedule.task for schedule in found} - self._tasks.keys()
        specs = dict(self._tasks) | {task: TaskSpec.named(task) for task in strange}
        if strange:
            published = [read_declaration(control) for control in await self._store.controls(declaration.KIND)]
            specs |= {each.name: each.spec() for each in published if each is not None and each.name in strange}
        return specs

    async def _stored_revision(self) -> int:
        controls = await self._store.controls(REVISION.kind)
        return max((control.version for control in controls), default=0)

    def _tell(self, event: str, **fields: object) -> None:
        said = f"{event}{fields}"
        if said not in self._told:
            self._told.add(said)
            worker_log(logging.WARNING, event, **fields)
