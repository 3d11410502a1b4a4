"""Runs what people ask of a store: the one operator API under the CLI, HTTP, the dashboard and MCP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from limpet.core.errors import ResultTimeout, UnknownQueue, UsageError
from limpet.core.gate import Gate
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.retention import Keep
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import (
    Entry,
    Inspection,
    JobView,
    Query,
    QueueView,
)
from limpet.core.records.bulk import BulkReport
from limpet.core.records.cause import CauseRecord
from limpet.core.records.explanation import Explanation
from limpet.core.records.hook import HookRecord
from limpet.core.records.job import JobDetail, JobPage, JobRecord
from limpet.core.records.limit import BreakerPage, BreakerRecord, ChangeRecord, LimitRecord
from limpet.core.records.log import AuditRecord, EventRecord, FindingRecord, JobHistory, RepairReport
from limpet.core.records.queue import (
    QueueRecord,
    RetentionChange,
    RetentionRecord,
    StatsRecord,
    WeightChange,
    WeightRecord,
)
from limpet.core.records.task import TaskDetail, TaskRecord
from limpet.core.records.worker import WorkerRecord
from limpet.core.redaction.redaction import Redaction, Veil
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.storable import checked_text
from limpet.ops import hooks
from limpet.ops.blocked_loop import loop_words
from limpet.ops.bulk import Act, Decision, Facts, Progress, run_bulk
from limpet.ops.declared import declared_gates, declared_queues, task_names
from limpet.ops.deeds import Discarding
from limpet.ops.desk import Desk
from limpet.ops.doctor import doctor
from limpet.ops.edits import Edit
from limpet.ops.events import history, is_about, latest
from limpet.ops.explain import explain
from limpet.ops.feed import EventStream, Feed
from limpet.ops.gates import Gates
from limpet.ops.limits import (
    LimitChange,
    Waiters,
    breaker_gate_key,
    kept_numbers,
    keys_of_limit,
    limit_gate_key,
    limit_records,
    waiters,
)
from limpet.ops.names import UnknownName, unknown_gate_note
from limpet.ops.operations import Operations
from limpet.ops.position import executor_of, more_urgent
from limpet.ops.query import parse_query, query_text
from limpet.ops.redaction import Redactions, redaction_of
from limpet.ops.repair import repair
from limpet.ops.rerun import FINAL, Rerun
from limpet.ops.retention import clear_retention, retention, set_retention
from limpet.ops.retry import DEAD, Retry, retried_states
from limpet.ops.select import Which, chosen, guarded, key_holders, not_stored, refuse_unknown_steps, resolve
from limpet.ops.shown_jobs import ShownJobs
from limpet.ops.tasks import last_minute, task, tasks
from limpet.ops.tokens import Tokens
from limpet.ops.weights import set_weight, weights
from limpet.stores.asking import MOST_GATES, gate_of
from limpet.stores.base import Store

R = TypeVar("R")


class Operator:
    """Asks about work and corrects it, in the name of `actor`; every change leaves a line in the audit log.

    >>> operator = Operator(store, "ada")                                    # doctest: +SKIP
    >>> await operator.retry("state:dead error:Timeout", reason="provider is back")  # doctest: +SKIP
    """

    def __init__(self, store: Store, actor: str, *, clock: Callable[[], int] | None = None) -> None:
        self.store = store
        self.actor = checked_text(actor, what="actor")
        self._clock = clock
        self.gates = Gates(store, self.actor, clock)
        self.tokens = Tokens(store, self.actor, clock)
        self.desk = Desk(store, self.actor, clock)
        self.redaction = Redactions(store, self.actor, clock)
        self.operations = Operations(store, self.actor, clock)

    @property
    def _asked_ms(self) -> int | None:
        """The instant to pass to the store; None leaves it to the engine's clock."""
        return None if self._clock is None else self._clock()

    def now_ms(self) -> int:
        """The instant that relative words ("in 12 s") are counted from."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    # -- asking

    async def jobs(self, query: str | Query = "", *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """One page of jobs."""
        if isinstance(query, str):
            query = parse_query(query, limit=limit, cursor=cursor)
        redaction = await redaction_of(self.store)
        return JobPage.of(await ShownJobs(redaction, query).page(self.store, self._asked_ms), redaction)

    async def dead(self, query: str = "", *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """One page of dead jobs; a query for another state is refused."""
        return await self.jobs(guarded(parse_query(query, limit=limit, cursor=cursor), DEAD, "this list"))

    async def resolve(self, text: str) -> bytes:
        """The id that `text` names, whole or by its unique end."""
        return await resolve(self.store, text)

    async def job(self, id: str | bytes) -> JobDetail:
        """Everything about one job."""
        veil, found = await self._inspection(id)
        return JobDetail.whole(veil.view, found.attempts)

    async def wait(self, id: str | bytes, timeout_s: float) -> None:
        """Return when the job has finished or is gone, or when the time is over."""
        raw = id if isinstance(id, bytes) else await self.resolve(id)
        with suppress(ResultTimeout):
            await self.store.watch(raw, round(timeout_s * 1000))

    async def history(self, id: str | bytes) -> JobHistory:
        """What the audit log and the event log say of the job, which may be gone."""
        raw = id if isinstance(id, bytes) else await self.resolve(id)
        found = await history(self.store, raw, await redaction_of(self.store))
        if not (found.audit or found.events) and await self.store.get([raw]) == [None]:
            raise not_stored(raw)
        return found

    async def _inspection(self, id: str | bytes) -> tuple[Veil, Inspection]:
        """A job as it may be shown, and what hides its secrets."""
        raw = id if isinstance(id, bytes) else await self.resolve(id)
        found = await self.store.inspect(raw, now_ms=self._asked_ms)
        if found is None:
            raise not_stored(raw)
        return (await redaction_of(self.store)).inspection(found)

    async def explain(self, id: str | bytes) -> Explanation:
        """Why the job is not running, or what became of it."""
        veil, found = await self._inspection(id)
        said = explain(
            found,
            now_ms=self.now_ms(),
            attempts=found.attempts,
            sessions=await self.store.sessions(),
            urgent=await more_urgent(self.store, found.view),
            executor=await executor_of(self.store, found.view),
        )
        return said.without(veil.secrets)

    async def causes(self, queue: str | None = None, *, limit: int = 50, since_ms: int = 0) -> list[CauseRecord]:
        """Dead jobs grouped by what killed them; with `since_ms` only causes that killed one since then."""
        return await self.desk.causes(queue, limit=limit, since_ms=since_ms)

    async def queues(self) -> list[QueueRecord]:
        """Every queue: queues with jobs now or before, and queues of live workers."""
        found = {view.queue: view for view in (await self.store.count(queues=True)).queues}
        declared = {gate.key: gate for gate in await declared_gates(self.store)}
        for name in await declared_queues(self.store):
            found.setdefault(name, QueueView(name, {}, None, declared.get(f"queue:{name}")))
        return [QueueRecord.of(found[name]) for name in sorted(found)]

    async def queue(self, name: str) -> QueueRecord:
        """One queue."""
        return _named(await self.queues(), "queue", name, UnknownQueue)

    async def workers(self) -> list[WorkerRecord]:
        """Live workers and agents."""
        now_ms = self.now_ms()
        return [WorkerRecord.of(view, loop_words(view, now_ms)) for view in await self.store.sessions()]

    async def tasks(self) -> list[TaskRecord]:
        """Every task, by name: where its jobs are, how they ended during the last minute, the workers that know it."""
        return await tasks(self.store)

    async def task(self, name: str) -> TaskDetail:
        """One task, by its name or a former one, with all that its code declares."""
        return await task(self.store, checked_text(name, what="task"))

    async def stats(self) -> StatsRecord:
        """Counters that sum up to what was enqueued; and how attempts ended during the last minute, by live workers."""
        return StatsRecord.of(await self.store.count(), await last_minute(self.store))

    async def left(self, key: str) -> int:
        """How many jobs of `all`, `queue:NAME` or `task:NAME`, under any name of it, have not finished."""
        kind, _, name = key.partition(":")
        keys = {f"task:{each}" for each in await task_names(self.store, name)} if kind == "task" else {key}
        return sum(
            count
            for (queue, task, state), count in (await self.store.count()).now.items()
            if state in LIVE and not {"all", f"queue:{queue}", f"task:{task}"}.isdisjoint(keys)
        )

    async def limits(self, begins: str = "") -> list[LimitRecord]:
        """Limits, and queues and tasks that have a ceiling of their own or were pushed back; 10,000 limits at most.

        Limits of live workers are listed before their first job, except keys made from a job's arguments.
        With `begins`, those whose keys begin so, and their buckets and budgets.
        """
        gates, now_ms = await self.gates.limits(begins), self.now_ms()
        behind = await self.waiters(gates)
        return limit_records([*gates, *behind.beyond] if len(gates) >= MOST_GATES else gates, behind, now_ms)

    async def limit(self, key: str) -> LimitRecord:
        """One limit, a bucket or budget of one, or the ceiling of a queue or task."""
        return _named(await self.limits(checked_text(key, what="key")), "key", limit_gate_key(key))

    async def waiters(self, limits: Sequence[Gate]) -> Waiters:
        """How many ready jobs each of these stops now; a bounded look."""
        return await waiters(self.store, limits, self.now_ms())

    async def breakers(self, begins: str = "", *, limit: int = 100, cursor: str | None = None) -> BreakerPage:
        """A page of breakers that have been declared, tripped or counted, and of other limits that are open as one.

        Those whose names begin with `begins`, open ones first. Breakers of live workers are listed before their
        first job; a breaker by key, while it is open or has counted failures.
        """
        page, now_ms = await self.gates.breakers(begins, limit=limit, cursor=cursor), self.now_ms()
        found = tuple(BreakerRecord.of(gate, now_ms) for gate in page.breakers)
        return BreakerPage(breakers=found, cursor=page.cursor)

    async def breaker(self, name: str) -> BreakerRecord:
        """One breaker."""
        page = await self.breakers(checked_text(name, what="breaker"), limit=MOST_GATES)
        return _named(page.breakers, "breaker", name.removeprefix("breaker:"))

    async def events(self, limit: int = 100, *, since_ms: int = 0, after: int | None = None) -> list[EventRecord]:
        """The newest events of the log, or the first ones after a seq: breakers, limits, budgets; oldest first."""
        if after is not None:
            return [EventRecord.of(entry) for entry in await self.store.read("event", after, limit)]
        return await self._events(limit, lambda entry: True, since_ms)

    async def _events(self, limit: int, wanted: Callable[[Entry], bool], since_ms: int) -> list[EventRecord]:
        return [EventRecord.of(entry) for entry in await latest(self.store, limit, wanted, since_ms=since_ms)]

    def live_events(self, query: str = "") -> EventStream:
        """What happens to jobs from now on, as far as it arrives: `JobEvent`, `JobCounts` of many, and `EventGap`.

        `async for` reads it; `async with` listens from a moment on. `query` may ask for state, queue, task and id.
        """
        return Feed(self.store).events(query)

    async def breaker_history(
        self, breaker: str | None = None, limit: int = 100, *, since_ms: int = 0
    ) -> list[EventRecord]:
        """When a breaker opened and closed, or all of them did; the event log's retention bounds it."""
        gates = None if breaker is None else frozenset({breaker_gate_key(breaker)})
        return await self._events(limit, lambda entry: is_about(entry, gates, ("breaker.",)), since_ms)

    async def limit_history(self, key: str | None = None, limit: int = 100, *, since_ms: int = 0) -> list[EventRecord]:
        """When a limit was held back or shut and its budgets ran out, or those of all limits."""
        gates = None if key is None else keys_of_limit(limit_gate_key(key))
        kinds = ("limit.", "budget.") if key is None else ()
        return await self._events(limit, lambda entry: is_about(entry, gates, kinds), since_ms)

    async def audit(self, after: int | None = None, limit: int = 100, *, since_ms: int = 0) -> list[AuditRecord]:
        """The newest lines of the audit log, or the first ones after a seq; oldest first."""
        if after is None:
            found = await latest(self.store, limit, log="audit", since_ms=since_ms)
        else:
            found = await self.store.read("audit", after, limit)
        redaction = await redaction_of(self.store)
        return [AuditRecord.of(entry, redaction) for entry in found]

    async def doctor(self) -> list[FindingRecord]:
        """What is wrong, or could be, with the engine, the queues and the tasks' own declarations."""
        return [FindingRecord.of(each) for each in await doctor(self.store, now_ms=self.now_ms())]

    async def repair(self, *, reason: str = "", dry_run: bool = False) -> RepairReport:
        """Set counters, slots and indexes by the stored records, while workers continue; `dry_run` only compares.

        A total is changed so that the sum of all jobs holds: vanished jobs count as discarded.
        """
        decision = Decision("store.repair", self.actor, reason)
        return await repair(self.store, decision, dry_run=dry_run, now_ms=self._asked_ms)

    # -- correcting jobs

    async def cancel(
        self,
        which: Which,
        *,
        reason: str = "",
        force: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Cancel waiting jobs with their dependents; ask running ones to stop (`force` takes the lease away)."""

        async def act(ids: Sequence[bytes]) -> Sequence[str]:
            return await self.store.cancel(ids, reason, force=force, now_ms=self._asked_ms)

        decision = self._decision("job.cancel", reason, which, force=force)
        return await self._bulk(
            decision, which, LIVE, act, frozenset({"cancelled", "cancelling"}), dry_run=dry_run, progress=progress
        )

    async def retry(
        self,
        which: Which,
        *,
        reason: str = "",
        delay_ms: int = 0,
        args: Mapping[str, Any] | None = None,
        patch: Mapping[str, Any] | None = None,
        forget: Sequence[str] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Bring dead jobs back, with new arguments (`args`) or some of them changed (`patch`).

        What they have recorded of their steps stays, but for those they shall `forget` ("*": all). A query that names
        no state means dead jobs; `state:scheduled` starts those now, and ends their sleep if they are asleep.
        """
        edit = Edit(args, patch)
        which = parse_query(which) if isinstance(which, str) else which
        if forget and not isinstance(which, Query):
            await refuse_unknown_steps(self.store, [await self.resolve(text) for text in which], forget)
        redaction = await redaction_of(self.store)
        retry = Retry(self.store, self.actor, reason, edit, redaction, delay_ms, tuple(forget), self._asked_ms)
        said = redaction.all.facts({"args": args, "patch": patch})
        decision = self._decision("job.retry", reason, which, delay_ms=delay_ms, forget=forget, **said)
        report = await self._bulk(
            decision,
            which,
            retried_states(which),
            retry.act,
            frozenset({"retried"}),
            dry_run=dry_run,
            progress=progress,
            edit=edit,
            facts=retry.facts,
        )
        return replace(report, holders=await key_holders(self.store, retry.refused)) if retry.refused else report

    async def rerun(
        self,
        which: Which,
        *,
        reason: str = "",
        unique: bool = True,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> BulkReport:
        """Make new jobs of succeeded and cancelled ones: the same arguments, everything else as declared today.

        A new job has neither parents nor dependents, and names the old one. It takes the unique key of that one if
        the key is free, else it is not made (`unique=False`: it takes none). The oldest come first.
        """
        again = Rerun(self.store, unique, self.now_ms(), self._asked_ms)
        decision = self._decision("job.rerun", reason, which, no_unique=not unique)
        report = await self._bulk(
            decision,
            which,
            FINAL,
            again.act,
            frozenset({"rerun"}),
            dry_run=dry_run,
            progress=progress,
            facts=lambda id: {"new": id_text(again.made[id])},
            oldest_first=True,  # the new jobs queue in the order of the old ones
        )
        made = {id_text(old): id_text(new) for old, new in again.made.items()}
        return replace(report, holders=again.holders, made=made, notes=tuple(again.notes))

    async def discard(
        self, which: Which, *, reason: str = "", dry_run: bool = False, progress: Progress | None = None
    ) -> BulkReport:
        """Remove dead jobs for good. What they were stays in the audit log."""

        deed = Discarding(self.store, self._asked_ms)
        decision = self._decision("job.discard", reason, which)
        return await self._bulk(
            decision,
            which,
            DEAD,
            deed.act,
            deed.changed,
            dry_run=dry_run,
            progress=progress,
            facts=lambda id: deed.causes.pop(id, {}),
        )

    async def _bulk(
        self,
        decision: Decision,
        which: Which,
        states: frozenset[State],
        act: Act,
        changed: frozenset[str],
        *,
        dry_run: bool,
        progress: Progress | None,
        edit: Edit | None = None,
        facts: Facts | None = None,
        oldest_first: bool = False,
    ) -> BulkReport:
        verb = decision.kind.partition(".")[2]
        redaction = await redaction_of(self.store)
        ids, samples = await chosen(self.store, which, states, verb, redaction, now_ms=self._asked_ms)
        if oldest_first:
            ids.sort()
        report = BulkReport(verb, len(ids), _records(samples, redaction), dry_run=dry_run)
        if edit:
            notes = await edit.check(self.store, ids, redaction)
            edited = tuple(JobRecord.of(redaction.job(edit.of(view), view)) for view in samples)
            edits = tuple(edit.changes(view, redaction) for view in samples)
            report = replace(report, samples=edited, edits=edits, notes=notes)
        if dry_run:
            return report
        done, answers = await run_bulk(
            self.store, decision, ids, act, changed=changed, now_ms=self._asked_ms, progress=progress, facts=facts
        )
        return replace(report, done=done, answers=dict(answers))

    def _decision(self, kind: str, reason: str, which: Which, **data: object) -> Decision:
        facts = {name: value for name, value in data.items() if value}
        if isinstance(which, str | Query):
            facts["query"] = which if isinstance(which, str) else query_text(which)
        return Decision(kind, self.actor, reason, facts)

    # -- shares

    async def weights(self) -> list[WeightRecord]:
        """Queues and tenants whose turns serve more than one job."""
        return await weights(self.store)

    async def set_weight(self, name: str, weight: int, *, reason: str = "") -> WeightChange:
        """Let one turn of `queue:NAME` or `tenant:NAME` serve this number of jobs; the default is 1."""
        decision = Decision("weight.set", self.actor, reason, {"name": name, "weight": weight})
        found = await set_weight(self.store, name, weight)
        await self.store.append([decision.entry(self._asked_ms)])
        return found

    # -- hooks

    async def hooks(self) -> tuple[HookRecord, ...]:
        """The published hooks: which ends they hear of, how many of their jobs wait, and who runs them."""
        return await hooks.hooks(self.store)

    async def remove_hook(self, name: str, *, reason: str = "") -> ChangeRecord:
        """No end is told to this hook any more, until a worker that declares it starts. Jobs that it has stay."""
        decision = Decision("hook.remove", self.actor, reason, {"name": name})
        await hooks.remove(self.store, name)
        await self.store.append([decision.entry(self._asked_ms)])
        return ChangeRecord(key=name, changed=(name,), state="removed", notes=("jobs that it has stay",))

    # -- how long finished jobs stay

    async def retention(self) -> list[RetentionRecord]:
        """Queues whose finished jobs stay for another time than those of all others."""
        return await retention(self.store)

    async def set_retention(self, queue: str, keep: Keep, *, reason: str = "") -> RetentionChange:
        """Keep finished jobs of a queue so long, by how they ended: {"succeeded": "7d", "dead": None} (None: for ever).

        It wins over what code and settings files say until it is cleared.
        """
        decision = Decision("retention.set", self.actor, reason, {"queue": queue})
        found = await set_retention(self.store, queue, keep)
        said = {state: found.keep[state] for state, who in found.set_by.items() if who == "operator"}
        await self.store.append([decision.entry(self._asked_ms, keep=said)])
        return found

    async def clear_retention(self, queue: str, *, reason: str = "") -> RetentionChange:
        """Forget what was set for a queue."""
        decision = Decision("retention.clear", self.actor, reason, {"queue": queue})
        found = await clear_retention(self.store, queue)
        await self.store.append([decision.entry(self._asked_ms)])
        return found

    # -- correcting gates

    async def pause(self, key: str, *, reason: str = "", new: bool = False) -> ChangeRecord:
        """Stop claims of `key`: `all`, `queue:NAME` or `task:NAME`. Running jobs continue.

        A pause without a reason leaves one that is there as it is; with a reason it takes its place.
        """
        before = await gate_of(self.store, await self.gates.met(key, new=new))
        gate = await self.gates.pause(key, reason=reason, new=new)
        note = ""
        if before is not None and before.paused is not None:
            old = f"paused by {before.paused.by}{f': {before.paused.reason}' if before.paused.reason else ''}"
            note = f"it was {old}; {'that stays' if gate.paused == before.paused else 'this replaces it'}"
        return _changed([gate], "paused", note)

    async def resume(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Undo a pause or a drain."""
        return _changed([await self.gates.resume(key, reason=reason)], "resumed")

    async def drain(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Refuse new jobs of `all`, `queue:NAME` or `task:NAME` and work off the rest; what is empty ends paused."""
        return _changed([await self.gates.drain(key, reason=reason)], "draining")

    async def set_limit(self, key: str, change: LimitChange, *, reason: str = "", new: bool = True) -> ChangeRecord:
        """Set a rate, a ceiling, buckets or budgets by hand; they win over what the code declares until cleared."""
        rules = await self.gates.limit_rules(key, change)
        notes = [await unknown_gate_note(self.store, rule.key) for rule in rules]
        return _changed(await self.gates.set_limit(key, change, reason=reason, new=new), "set", *notes)

    async def clear_limit(self, key: str, *, reason: str = "") -> ChangeRecord:
        """Forget what an operator set for a limit, its buckets and its budgets: the code's declaration rules again.

        If no operator has set it, forget a declaration that is no longer in the code.
        """
        found = await self.gates.clear_limit(key, reason=reason)
        return _changed(found, "cleared", *await kept_numbers(self.store, found))

    async def trip(
        self, breaker: str, *, for_ms: int | None = None, reason: str = "", new: bool = False
    ) -> ChangeRecord:
        """Open a breaker by hand: for a time, after which a probe is let through, or until it is reset."""
        return _changed([await self.gates.trip(breaker, for_ms=for_ms, reason=reason, new=new)], "open")

    async def reset(self, breaker: str, *, reason: str = "") -> ChangeRecord:
        """Close a breaker and forget its failures; also the breaker of a limit (`limit:KEY`) or task (`task:NAME`)."""
        return _changed([await self.gates.reset(breaker, reason=reason)], "closed")


def _records(views: Iterable[JobView], redaction: Redaction) -> tuple[JobRecord, ...]:
    return tuple(JobRecord.of(redaction.job(view)) for view in views)


def _named(found: Sequence[R], field: str, name: str, error: type[UsageError] = UnknownName) -> R:
    """The record of that name."""
    names = [getattr(each, field) for each in found]
    if name not in names:
        raise error(f"there is no {field} {name!r:.80}", fix=did_you_mean(name, names))
    return found[names.index(name)]


def _changed(gates: Sequence[Gate], state: str, *notes: str) -> ChangeRecord:
    keys = tuple(gate.key for gate in gates)
    return ChangeRecord(key=keys[0], changed=keys, state=state, notes=tuple(note for note in notes if note))
