"""Asks about work: jobs, causes, queues, tasks, workers, limits and the logs, as faces may show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from limpet.core.errors import ResultTimeout, UnknownQueue, UsageError
from limpet.core.gate import Gate
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import LIVE
from limpet.core.jobs.view import Entry, Inspection, Query, QueueView
from limpet.core.metrics.family import Value
from limpet.core.records.cause import CauseRecord
from limpet.core.records.explanation import Explanation
from limpet.core.records.job import JobDetail, JobPage
from limpet.core.records.limit import BreakerPage, BreakerRecord, LimitRecord
from limpet.core.records.log import AuditRecord, EventRecord, JobHistory
from limpet.core.records.queue import QueueRecord, StatsRecord
from limpet.core.records.scale import ScaleRecord
from limpet.core.records.series import By, SeriesRecord
from limpet.core.records.task import TaskDetail, TaskRecord
from limpet.core.records.worker import WorkerRecord
from limpet.core.redaction.redaction import Veil
from limpet.core.tasks.naming import did_you_mean
from limpet.core.text.duration import Duration
from limpet.core.text.storable import checked_text
from limpet.ops.blocked_loop import loop_words
from limpet.ops.declared import declared_gates, declared_queues, task_names
from limpet.ops.desk import Desk
from limpet.ops.events import ANY_LINE, AuditFilter, history, is_about, latest
from limpet.ops.explain import explain
from limpet.ops.feed import EventStream, Feed
from limpet.ops.gates import Gates
from limpet.ops.limits import Waiters, breaker_gate_key, keys_of_limit, limit_gate_key, limit_records, waiters
from limpet.ops.names import UnknownName
from limpet.ops.position import executor_of, more_urgent
from limpet.ops.query import parse_query
from limpet.ops.redaction import redaction_of
from limpet.ops.retry import DEAD
from limpet.ops.scale import scale
from limpet.ops.select import guarded, not_stored, resolve
from limpet.ops.series import Asked, series
from limpet.ops.shown_jobs import ShownJobs
from limpet.ops.store_metrics import store_metrics
from limpet.ops.tasks import last_minute, task, tasks
from limpet.stores.asking import MOST_GATES
from limpet.stores.base import Store
from limpet.stores.search import named

R = TypeVar("R")


class Questions:
    """What people ask of a store, in an `Operator`."""

    store: Store
    gates: Gates
    desk: Desk
    _clock: Callable[[], int] | None
    _tells_leases: bool

    @property
    def _asked_ms(self) -> int | None:
        """The instant to pass to the store; None leaves it to the engine's clock."""
        return None if self._clock is None else self._clock()

    def now_ms(self) -> int:
        """The instant that relative words ("in 12 s") are counted from."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock()

    async def jobs(self, query: str | Query = "", *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """One page of jobs."""
        if isinstance(query, str):
            query = parse_query(query, limit=limit, cursor=cursor)
        redaction = await redaction_of(self.store)
        return JobPage.of(await ShownJobs(redaction, query).page(self.store, self._asked_ms), redaction)

    async def those(self, ids: Sequence[str]) -> JobPage:
        """The jobs of these ids as they are now, in their order; those that are gone are left out."""
        redaction = await redaction_of(self.store)
        return JobPage.of(named(await self.store.get(list(map(id_bytes, ids)))), redaction)

    async def dead(self, query: str = "", *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """One page of dead jobs; a query for another state is refused."""
        return await self.jobs(guarded(parse_query(query, limit=limit, cursor=cursor), DEAD, "this list"))

    async def resolve(self, text: str) -> bytes:
        """The id that `text` names, whole or by its unique end."""
        return await resolve(self.store, text)

    async def job(self, id: str | bytes) -> JobDetail:
        """Everything about one job."""
        veil, found = await self._inspection(id)
        detail = JobDetail.whole(veil.view, found.attempts)
        return detail if self._tells_leases else replace(detail, token=None)

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
        return found if self._tells_leases else replace(found, audit=tuple(map(AuditRecord.without_lease, found.audit)))

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

    async def series(
        self,
        last: Duration = "1h",
        *,
        step: Duration | None = None,
        by: By | None = None,
        queue: str | None = None,
        task: str | None = None,
        ago: Duration = 0,
    ) -> SeriesRecord:
        """Rates, run and wait times and depths over time, for charts: up to 35 days, by minutes for the last 48 hours.

        `ago` ends it so long ago: last="24h", ago="7d" are the same hours of last week.
        """
        asked = Asked(last=last, step=step, by=by, queue=queue, task=task, ago=ago)
        return await series(self.store, asked, now_ms=self._asked_ms)

    async def scale(self, *queues: str, per_worker: int = 100) -> ScaleRecord:
        """How many workers, each with `per_worker` slots, the jobs of these queues want now; of all without a name."""
        return await scale(self.store, queues, per_worker, now_ms=self._asked_ms)

    async def metrics(self) -> list[Value]:
        """What the store knows, as metrics."""
        return await store_metrics(self.store, now_ms=self._asked_ms)

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

    async def audit(
        self,
        after: int | None = None,
        limit: int = 100,
        *,
        since_ms: int = 0,
        before: int | None = None,
        wanted: AuditFilter = ANY_LINE,
    ) -> list[AuditRecord]:
        """The newest lines of the audit log that are wanted, or those before a seq; or all after one; oldest first."""
        if after is None:
            found = await latest(self.store, limit, wanted.fits, log="audit", since_ms=since_ms, before=before)
        else:
            found = await self.store.read("audit", after, limit)
        redaction = await redaction_of(self.store)
        lines = [AuditRecord.of(entry, redaction) for entry in found]
        return lines if self._tells_leases else list(map(AuditRecord.without_lease, lines))


def _named(found: Sequence[R], field: str, name: str, error: type[UsageError] = UnknownName) -> R:
    """The record of that name."""
    names = [getattr(each, field) for each in found]
    if name not in names:
        raise error(f"there is no {field} {name!r:.80}", fix=did_you_mean(name, names))
    return found[names.index(name)]
