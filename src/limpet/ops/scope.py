"""Shows a store as if it held some queues only: whatever is asked of it, jobs of other queues are not there.

Every verb is narrowed here, below `Operator` and its neighbours, so that none of them, nor a face above them, can
forget it. What belongs to no single queue (limits, breakers, tenants' shares, tokens) is not shown and not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn

from msgspec.structs import replace

from limpet.core.access.refusal import OutOfScope
from limpet.core.alerts import rule
from limpet.core.endings.transition import Settled, Transition
from limpet.core.errors import UnknownParent
from limpet.core.gate import Gate, GateChange, GateRule, WorstFirst, rank_key
from limpet.core.jobs import rollup
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Note, Pulse, Serves, SessionView, Signal, Wake
from limpet.core.jobs.state import State
from limpet.core.jobs.view import (
    CauseView,
    Control,
    Counts,
    Entry,
    FlowView,
    Inspection,
    JobView,
    Page,
    Query,
    Retention,
    Term,
)
from limpet.core.schedules import schedule
from limpet.core.schedules.schedule import Schedule, read_schedule
from limpet.core.tasks import declaration
from limpet.ops.declared import declared_tasks
from limpet.ops.scope_records import (
    FOR_ALL,
    QUEUE_OF,
    TICKS,
    alerts_of,
    facts_of,
    queue_in,
    queue_of,
    queue_of_entry,
    queue_of_task,
    queues_of_schedules,
    schedule_of,
    tasks_of_others,
)
from limpet.stores.asking import find_all
from limpet.stores.base import (
    MARK,
    NOTHING_SPENT,
    CancelAnswer,
    RetryAnswer,
    RetryRequest,
    SignalAnswer,
    Store,
)

ROUNDS: Final = 20  # pages that are looked through for one that is shown
LINES: Final = 1_000  # of a log, in one look
LOOKS: Final = 100
HIDDEN: Final = bytes(16)  # the id of no job: stands for one of another queue

_FIX: Final = "use a token for that queue, or for every queue"


class ScopedStore:
    """A store of some queues: the thirty verbs of another one, which stays open when this one is closed."""

    def __init__(self, store: Store, queues: frozenset[str]) -> None:
        self._store = store
        self._queues = queues
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
        if name is None or (await queues_of_schedules(self._store)).get(name) not in self._queues | {None}:
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
        return await tasks_of_others(self._store, self._queues)

    async def _refuse_jobs(self, jobs: Sequence[Job]) -> None:
        foreign = await self.foreign()
        for job in jobs:
            if job.lane.queue not in self._queues:
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

    # -- workers

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        await self._refuse_session(beat.session)
        notes = await self._mine([id for id, _, _ in beat.notes])
        kept = tuple(note for note in beat.notes if note[0] in notes)
        return await self._store.beat(replace(beat, serves=self._served(beat.serves), notes=kept), now_ms=now_ms)

    async def leave(self, session: str, *, now_ms: int | None = None) -> None:
        await self._refuse_session(session)
        await self._store.leave(session, now_ms=now_ms)

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        await self._refuse_session(request.session)
        return await self._store.claim(replace(request, serves=self._served(request.serves)), now_ms=now_ms)

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        await self._refuse_session(session)
        await self._refuse_others([each.id for each in transitions])
        return await self._store.settle(session, seq, transitions, spent=spent, now_ms=now_ms)

    async def save(self, id: bytes, token: int, note: Note, *, now_ms: int | None = None) -> bool:
        return bool(await self._mine([id])) and await self._store.save(id, token, note, now_ms=now_ms)

    async def held(self, session: str) -> list[Held]:
        await self._refuse_session(session)
        return await self._store.held(session)

    async def expire(self, limit: int = 256, *, now_ms: int | None = None) -> int:
        self._refuse("every queue together")

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        await self._refuse_session(session)
        return await self._store.wait(session, timeout_ms)

    def _served(self, serves: Serves) -> Serves:
        """What a worker may serve: without names, the queues of the scope."""
        if serves.queues is None:
            return replace(serves, queues=tuple(sorted(self._queues)))
        for queue in serves.queues:
            if queue not in self._queues:
                self._refuse(f"the queue {queue!r}")
        return serves

    async def _refuse_session(self, session: str) -> None:
        """A session of another worker, which serves other queues too, is not to be touched."""
        for view in await self._store.sessions():
            if view.session == session and not self._within(view):
                self._refuse(f"the session {session!r:.80}")

    def _within(self, view: SessionView) -> bool:
        return view.serves.queues is not None and self._queues.issuperset(view.serves.queues)

    async def _refuse_others(self, ids: Sequence[bytes]) -> None:
        """Refuse jobs that are there and of other queues; what has gone is answered by the store."""
        for view in await self._store.get(ids):
            if view is not None and view.lane.queue not in self._queues:
                self._refuse(f"job {id_text(view.id)}")

    # -- people and handles

    async def cancel(
        self, ids: Sequence[bytes], reason: str, *, force: bool = False, now_ms: int | None = None
    ) -> list[CancelAnswer]:
        mine = await self._mine(ids)
        answers = await self._store.cancel([*mine], reason, force=force, now_ms=now_ms) if mine else []
        said = dict(zip(mine, answers, strict=True))
        return [said.get(id, "gone") for id in ids]

    async def retry(self, request: RetryRequest, *, now_ms: int | None = None) -> list[RetryAnswer]:
        mine = await self._mine(request.ids)
        answers = await self._store.retry(replace(request, ids=tuple(mine)), now_ms=now_ms) if mine else []
        said = dict(zip(mine, answers, strict=True))
        return [said.get(id, "gone") for id in request.ids]

    async def signal(self, signals: Sequence[Signal], *, now_ms: int | None = None) -> list[SignalAnswer]:
        mine = await self._mine([each.id for each in signals])
        sent = [each for each in signals if each.id in mine]
        answers = iter(await self._store.signal(sent, now_ms=now_ms) if sent else [])
        return [next(answers) if each.id in mine else "gone" for each in signals]

    async def discard(self, ids: Sequence[bytes], *, now_ms: int | None = None) -> int:
        return await self._store.discard([*await self._mine(ids)], now_ms=now_ms)

    async def watch(self, id: bytes, timeout_ms: int | None) -> JobView | None:
        return await self._store.watch(id, timeout_ms) if await self._mine([id]) else None

    async def get(self, ids: Sequence[bytes]) -> list[JobView | None]:
        found = await self._store.get(ids)
        return [view if view is not None and view.lane.queue in self._queues else None for view in found]

    async def _mine(self, ids: Sequence[bytes]) -> dict[bytes, None]:
        """Those of these jobs that are there, in order, each once."""
        return dict.fromkeys(view.id for view in (await self.get(ids) if ids else []) if view is not None)

    async def find(self, query: Query, *, now_ms: int | None = None) -> Page:
        """With one queue that is a condition of the query; with several, pages are looked through."""
        if query.suffix is None and len(self._queues) == 1:
            (queue,) = self._queues
            query = replace(query, terms=(*query.terms, Term("queue", queue)))
            return await self._store.find(query, now_ms=now_ms)
        found: list[JobView] = []
        for _ in range(ROUNDS):
            page = await self._store.find(replace(query, limit=query.limit - len(found)), now_ms=now_ms)
            found += [view for view in page.jobs if view.lane.queue in self._queues]
            query = replace(query, cursor=page.cursor)
            if page.cursor is None or len(found) >= query.limit:
                break
        return Page(tuple(found), query.cursor, complete=query.cursor is None or len(found) >= query.limit)

    async def flows(
        self, ids: Sequence[bytes] | None = None, limit: int = 50, before: bytes | None = None
    ) -> list[FlowView]:
        """Those whose jobs are all of these queues."""
        if ids is not None:
            return [view for view in await self._store.flows(ids) if await self._is_whole(view)]
        found: list[FlowView] = []
        for _ in range(ROUNDS):
            page = await self._store.flows(None, limit, before)
            found += [view for view in page if await self._is_whole(view)]
            if len(page) < limit or len(found) >= limit:
                break
            before = page[-1].id
        return found[:limit]

    async def _is_whole(self, view: FlowView) -> bool:
        mine = await find_all(self, Query(None, (Term("flow", id_text(view.id)),), limit=LINES))
        return len(mine) >= sum(view.counts.values())

    async def causes(self, queue: str | None = None, limit: int = 50) -> list[CauseView]:
        queues = self._queues if queue is None else self._queues & {queue}
        found = [view for each in sorted(queues) for view in await self._store.causes(each, limit)]
        return sorted(found, key=lambda view: -view.count)[:limit]

    async def count(self, *, queues: bool = False) -> Counts:
        """The jobs of now; what has happened since the store was made is not kept by queue."""
        counts = await self._store.count(queues=queues)
        now = {key: number for key, number in counts.now.items() if key[0] in self._queues}
        seen = tuple(view for view in counts.queues if view.queue in self._queues)
        return Counts(now, 0, 0, 0, 0, 0, 0, queues=seen, whole=False)

    async def inspect(self, id: bytes, *, now_ms: int | None = None) -> Inspection | None:
        found = await self._store.inspect(id, now_ms=now_ms)
        return found if found is not None and found.view.lane.queue in self._queues else None

    async def change_gates(self, changes: Sequence[GateChange], *, now_ms: int | None = None) -> list[Gate]:
        for change in changes:
            if queue_in(change.key) not in self._queues:
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
        if name is None:
            about = QUEUE_OF.get(control.kind)
            return about is not None and about(control) in self._queues
        queues = await queues_of_schedules(self._store)
        new = read_schedule(control) if control.kind == schedule.KIND else None
        declared = {each.name: queue_of_task(each) for each in await self._store.controls(declaration.KIND)}
        meant = {queues[name]} if name in queues else set[str]()
        if isinstance(new, Schedule):
            if new.task in await self.foreign():
                return False
            meant.add(queue_of(new, declared))
        return meant <= self._queues and (bool(meant) or control.kind != schedule.KIND)

    async def controls(self, kind: str) -> list[Control]:
        found = await self._store.controls(kind)
        if kind in FOR_ALL:
            return found
        if kind.partition(":")[0] == rollup.KIND:
            return [rollup.narrowed(each, self._queues) for each in found]
        if kind in (schedule.KIND, MARK) or kind.startswith(TICKS):
            queues = await queues_of_schedules(self._store)
            return [each for each in found if queues.get(schedule_of(kind, each.name) or "") in self._queues]
        if kind == rule.KIND:
            return alerts_of(found, self._queues)
        about = QUEUE_OF.get(kind)
        return [] if about is None else [each for each in found if about(each) in self._queues]

    async def sessions(self) -> list[SessionView]:
        """Workers that serve one of these queues; of those that serve others too, what they say is left out."""
        found = await self._store.sessions()
        serving = [each for each in found if each.serves.queues is None or self._queues & {*each.serves.queues}]
        mixed = [each for each in serving if not self._within(each)]
        jobs = await find_all(self, Query(frozenset({State.running}), limit=LINES)) if mixed else []
        running = Counter(job.session for job in jobs)
        return [each if self._within(each) else self._narrowed(each, running[each.session]) for each in serving]

    def _narrowed(self, view: SessionView, running: int) -> SessionView:
        queues = self._queues if view.serves.queues is None else self._queues.intersection(view.serves.queues)
        serves = Serves(tuple(sorted(queues)), None, view.serves.capabilities)
        return replace(view, serves=serves, info=b"{}", running=running)

    # -- housekeeping

    async def append(self, entries: Sequence[Entry]) -> None:
        await self._store.append(entries)

    async def read(
        self, log: Literal["audit", "event"], after: int = 0, limit: int = 100, *, newest: bool = False
    ) -> list[Entry]:
        if newest:
            return await self._newest(log, after, limit)
        found: list[Entry] = []
        for _ in range(LOOKS):
            page = await self._store.read(log, after, LINES)
            found += await self._shown(page)
            if len(page) < LINES or len(found) >= limit:
                break
            after = page[-1].seq
        return found[:limit]

    async def _newest(self, log: Literal["audit", "event"], after: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        last = await self._store.read(log, limit=1, newest=True)
        until = last[0].seq if last else 0
        for _ in range(LOOKS):
            if until <= after or len(found) >= limit:
                break
            begin = max(after, until - LINES)
            page = [each for each in await self._store.read(log, begin, LINES) if each.seq <= until]
            found = await self._shown(page) + found
            until = begin
        return found[-limit:] if limit else []

    async def _shown(self, entries: Sequence[Entry]) -> list[Entry]:
        """Lines that are about one of these queues, by what they say or by their job."""
        said = {each.seq: queue_of_entry(each) for each in entries}
        mine = await self._mine([each.job for each in entries if each.job is not None and said[each.seq] is None])
        about = {facts_of(each).get("schedule") for each in entries} - {None}
        schedules = await queues_of_schedules(self._store) if about else {}

        def shown(each: Entry) -> bool:
            queue = said[each.seq] or schedules.get(str(facts_of(each).get("schedule")))
            return each.job in mine if queue is None else queue in self._queues

        return [each for each in entries if shown(each)]

    async def prune(self, retention: Retention, limit: int = 1_000, *, now_ms: int | None = None) -> int:
        self._refuse("every queue together")

    # -- what engines can do besides: it is about the whole store

    async def check(self) -> NoReturn:
        self._refuse("the whole store")

    async def accounts(self) -> NoReturn:
        self._refuse("the whole store")

    async def repair(self, **asked: Any) -> NoReturn:
        self._refuse("the whole store")

    def _refuse(self, what: str) -> NoReturn:
        queues = ", ".join(sorted(self._queues))
        raise OutOfScope(f"{what} is not within the scope of the token: {queues}", fix=_FIX)


async def foreign_tasks(store: Store) -> frozenset[str]:
    """The tasks of other queues, whose names a store of some queues does not tell; none for a whole store."""
    return await store.foreign() if isinstance(store, ScopedStore) else frozenset()
