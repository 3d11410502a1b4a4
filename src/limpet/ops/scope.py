"""Shows a store as if it held some queues only: whatever is asked of it, jobs of other queues are not there.

Every verb is narrowed here, below `Operator` and its neighbours, so that none of them, nor a face above them, can
forget it. What belongs to no single queue (limits, breakers, tenants' shares, tokens) is not shown and not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from limpet.core.alerts import rule
from limpet.core.errors import UnknownParent
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst, rank_key
from limpet.core.jobs import rollup
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control
from limpet.core.operations import operation
from limpet.core.schedules import schedule
from limpet.core.schedules.schedule import Schedule, read_schedule
from limpet.core.tasks import declaration
from limpet.ops.declared import declared_tasks
from limpet.ops.scope_logs import ScopedLogs
from limpet.ops.scope_records import (
    FOR_ALL,
    QUEUE_OF,
    TICKS,
    acts_within,
    alerts_of,
    queue_in,
    queue_of,
    queue_of_task,
    queues_of_schedules,
    schedule_of,
    tasks_of_others,
)
from limpet.ops.scope_workers import ScopedWorkers
from limpet.stores.base import MARK, Store

HIDDEN: Final = bytes(16)  # the id of no job: stands for one of another queue


class ScopedStore(ScopedWorkers, ScopedLogs):
    """A store of some queues: the thirty verbs of another one, which stays open when this one is closed."""

    def __init__(self, store: Store, queues: frozenset[str]) -> None:
        super().__init__(store, queues)
        self._gates = frozenset({"all", *(f"queue:{queue}" for queue in queues)})
        self.features = store.features

    @property
    def identity(self) -> str:
        """Which store it is."""
        return self._store.identity

    @identity.setter
    def identity(self, name: str) -> None:
        self._store.identity = name

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        """Nothing is closed: the store is another caller's, too."""

    async def now(self) -> int:
        return await self._store.now()

    # -- producers

    async def enqueue(
        self, jobs: Sequence[Job], rules: Sequence[GateRule] = (), *, now_ms: int | None = None
    ) -> list[Enqueued]:
        await self._refuse_jobs(jobs)
        return await self._without_others(await self._store.enqueue(jobs, rules, now_ms=now_ms))

    async def relay(
        self,
        source: str,
        batch: int,
        jobs: Sequence[Job],
        rules: Sequence[GateRule] = (),
        *,
        always: bool = False,
        now_ms: int | None = None,
    ) -> list[Enqueued] | None:
        """Only for runs of schedules: an outbox belongs to no queue."""
        name = schedule_of(MARK, source)
        if name is None or (await queues_of_schedules(self._store)).get(name) not in self.queues | {None}:
            self._refuse(f"the source {source!r:.80}")
        await self._refuse_jobs(jobs)
        answers = await self._store.relay(source, batch, jobs, rules, always=always, now_ms=now_ms)
        return None if answers is None else await self._without_others(answers)

    async def _without_others(self, answers: list[Enqueued]) -> list[Enqueued]:
        """Where a job of another queue holds the unique key, it is said that one does, and not which."""
        mine = await self._mine([each.id for each in answers if each.existing])
        hidden = Enqueued(HIDDEN, existing=True, state=State.ready)
        return [each if not each.existing or each.id in mine else hidden for each in answers]

    async def foreign(self) -> frozenset[str]:
        """The tasks that code declares for other queues."""
        return await tasks_of_others(self._store, self.queues)

    async def _refuse_jobs(self, jobs: Sequence[Job]) -> None:
        foreign = await self.foreign()
        for job in jobs:
            if job.lane.queue not in self.queues:
                self._refuse(f"the queue {job.lane.queue!r}")
            if job.lane.task in foreign:
                self._refuse(f"the task {job.lane.task!r}, which code declares for another queue,")
            if job.unique is not None and job.unique.on_duplicate != "existing":
                self._refuse(f"on_duplicate={job.unique.on_duplicate!r}, which may change a job of any queue,")
        own = {job.id for job in jobs}
        parents = [id for job in jobs for id in job.after if id not in own]
        for id, view in zip(parents, await self.get(parents), strict=True):
            if view is None:
                raise UnknownParent(f"the parent {id_text(id)} is not stored", fix="name a job that is")

    # -- what rules these queues

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        for change in changes:
            if queue_in(change.key) not in self.queues:
                self._refuse(change.key)
        return await self._store.change_gates(changes, now_ms=now_ms)

    async def gates(
        self, prefix: str = "", *, keys: Sequence[str] | None = None, worst_first: WorstFirst | None = None
    ) -> list[Gate]:
        """Those of these queues, and of limits and breakers that code declares for their tasks."""
        mine = await self._ruling()
        mine = mine if keys is None else mine.intersection(keys)
        found = await self._store.gates(keys=sorted(key for key in mine if key.startswith(prefix)))
        if worst_first is None:
            return found
        listed = [gate for gate in found if gate.key.startswith("breaker:") or gate.breaker_open]
        later = sorted((gate for gate in listed if rank_key(gate) > worst_first.after), key=rank_key)
        return later[: worst_first.limit]

    async def _ruling(self) -> frozenset[str]:
        """The keys of gates that may be shown. Other queues may use a declared limit, too."""
        tasks = await declared_tasks(self)
        return self._gates | {rule.key for task in tasks for rule in task.constant_rules()}

    async def put_control(self, control: Control, *, expect: int | None = None) -> Control | None:
        if control != schedule.REVISION and not await self._rules(control):
            self._refuse(f"{control.kind} {control.name!r:.80}")
        return await self._store.put_control(control, expect=expect)

    async def _rules(self, control: Control) -> bool:
        """Whether the record is about one of these queues, before the change and after it."""
        name = schedule_of(control.kind, control.name)
        if control.kind == operation.KIND:
            there = [each for each in await self._store.controls(operation.KIND) if each.name == control.name]
            return all(acts_within(each, self.queues) for each in (control, *there))
        if name is None:
            about = QUEUE_OF.get(control.kind)
            return about is not None and about(control) in self.queues
        queues = await queues_of_schedules(self._store)
        new = read_schedule(control) if control.kind == schedule.KIND else None
        declared = {each.name: queue_of_task(each) for each in await self._store.controls(declaration.KIND)}
        meant = {queues[name]} if name in queues else set[str]()
        if isinstance(new, Schedule):
            if new.task in await self.foreign():
                return False
            meant.add(queue_of(new, declared))
        return meant <= self.queues and (bool(meant) or control.kind != schedule.KIND)

    async def controls(self, kind: str) -> list[Control]:
        found = await self._store.controls(kind)
        if kind in FOR_ALL:
            return found
        if kind.partition(":")[0] == rollup.KIND:
            return [rollup.narrowed(each, self.queues) for each in found]
        if kind in (schedule.KIND, MARK) or kind.startswith(TICKS):
            queues = await queues_of_schedules(self._store)
            return [each for each in found if queues.get(schedule_of(kind, each.name) or "") in self.queues]
        if kind == rule.KIND:
            return alerts_of(found, self.queues)
        if kind == operation.KIND:
            return [each for each in found if acts_within(each, self.queues)]
        about = QUEUE_OF.get(kind)
        return [] if about is None else [each for each in found if about(each) in self.queues]

    # -- what engines can do besides: it is about the whole store

    async def check(self) -> NoReturn:
        self._refuse("the whole store")

    async def accounts(self) -> NoReturn:
        self._refuse("the whole store")

    async def repair(self, **asked: Any) -> NoReturn:
        self._refuse("the whole store")


def queues_of(store: Store) -> frozenset[str] | None:
    """The queues that a store is narrowed to; None: it is whole."""
    return store.queues if isinstance(store, ScopedStore) else None


def scoped(store: Store, queues: Iterable[str] | None) -> Store:
    """The same store narrowed to these queues; None: as it is."""
    return store if queues is None else ScopedStore(store, frozenset(queues))


async def foreign_tasks(store: Store) -> frozenset[str]:
    """The tasks of other queues, whose names a store of some queues does not tell; none for a whole store."""
    return await store.foreign() if isinstance(store, ScopedStore) else frozenset()
