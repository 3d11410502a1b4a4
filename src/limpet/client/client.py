"""Turns calls into stored jobs: one, many at once, or by name; the desk that tasks and handles ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from limpet.client.batch import Batch
from limpet.client.bridge import Bridge
from limpet.client.budget_precheck import BudgetPrecheck
from limpet.client.file_types import FileTypes, Tables
from limpet.client.flow import Flow
from limpet.client.flow_handle import FlowDesk, FlowHandle
from limpet.client.handle import Explain, JobHandle
from limpet.client.late import NOTHING_SENT, EnqueueTimeout, NotStored, too_early
from limpet.client.new_job import EnqueueMiddleware, NewJob
from limpet.client.options import CallOptions
from limpet.client.producer import Connection, Producer
from limpet.client.published_rules import PublishedRules
from limpet.client.registry import Published
from limpet.client.task import enqueue
from limpet.client.work import JobSpec, Work
from limpet.core.alerts.delivery import refuse_alerts
from limpet.core.errors import FlowNotFound, InvalidOption, StoreUnreachable, UnknownQueue, UsageError
from limpet.core.flows.refs import with_refs
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_bytes, known_id
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.options import refuse_waiting
from limpet.core.jobs.view import JobView
from limpet.core.records.explanation import Explanation
from limpet.core.redaction.redaction import Shown
from limpet.core.redaction.rule import Rule
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.naming import did_you_mean
from limpet.core.tasks.payload import decode_json
from limpet.core.tasks.task import PLAIN, Options, TaskSpec, build_job
from limpet.stores.asking import joining
from limpet.stores.base import Store
from limpet.stores.sending import followed

# Building jobs is pure computation: after this many the loop gets a turn, so a big batch delays no other task for long.
_TURN: Final = 500

T = TypeVar("T")

Injected = Callable[[TaskSpec], Mapping[str, Any] | None]


class ClientSettings(Struct, frozen=True, kw_only=True):
    """What an app decides for everything it enqueues."""

    enqueue_timeout_s: float = 5.0
    max_payload_bytes: int = MAX_BYTES
    queues: frozenset[str] | None = None  # None: queues exist by use


class Outbox(Protocol):
    """Where jobs wait for the commit of the caller's transaction, when the store cannot take part in it."""

    async def put(self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule] = ()) -> None:
        """Write them into that transaction."""


class Asked(NamedTuple):
    """A job as another program asks for it: by the name of its task."""

    task: str
    args: Mapping[str, Any]
    options: CallOptions


class Client:
    """The asking half of an app, for every event loop and thread of the process."""

    def __init__(
        self,
        connection: Connection,
        bridge: Bridge,
        settings: ClientSettings,
        *,
        specs: Mapping[str, TaskSpec],
        include: Callable[[], None],
        explain: Explain,
        flows: Callable[[Store], FlowDesk],
        injected: Injected,
        outbox: Callable[[], Outbox | None] = lambda: None,
        redact: Sequence[Rule] = (),
        types: Callable[[], Tables] = dict,
    ) -> None:
        self.bridge = bridge
        self.injected = injected  # answers what a worker of this process would inject, None without one
        self._connection = connection
        self._settings = settings
        self._specs = specs
        self._include = include  # declares the tasks of modules that are not imported yet
        self._explain = explain
        self._flows = flows
        self._outbox = outbox
        self.rules = PublishedRules(connection, specs, redact)
        self.producer = Producer(connection, settings.enqueue_timeout_s, specs, self.rules.publish)
        self.types = FileTypes(connection, types)
        self._published = Published(connection)
        self.middleware: list[EnqueueMiddleware] = []

    # -- what handles ask

    @property
    def store(self) -> Store:
        """The store of this process."""
        return self._connection.store

    async def explain(self, id: bytes) -> Explanation:
        """Why a job is where it is."""
        return await self._explain(self.store, id)

    @property
    def flows(self) -> FlowDesk:
        """How flows are read and corrected."""
        return self._flows(self.store)

    async def shown(self, view: JobView) -> Shown:
        """A job as it may be shown."""
        return (await self.rules.redaction()).job(view)

    def decode_result(self, task: str, raw: bytes | None) -> Any:
        """A result, rebuilt from the return annotation when the task is known here."""
        spec = self._declared(task)
        return decode_json(raw) if spec is None else spec.signature.decode_result(raw)

    def _declared(self, name: str) -> TaskSpec | None:
        """The task of that name, if the code of this program declares it."""
        if name not in self._specs:
            self._include()
        return self._specs.get(name)

    def handle(self, id: str) -> JobHandle[Any]:
        """The handle of a job whose id is known."""
        return JobHandle(self, known_id(id), task="", existing=True)

    def flow_handle(self, id: str) -> FlowHandle:
        """The handle of a flow whose id is known."""
        return FlowHandle(self, known_id(id, FlowNotFound))

    def new_id(self) -> bytes:
        """A new id for a job or a flow."""
        return self.producer.new_id()

    # -- asking for work

    async def check_budgets(self, spec: TaskSpec, job: Job) -> None:
        """Refuse a job that its budgets have no room for."""
        precheck = BudgetPrecheck()
        precheck.add(spec, job)
        await self._check(precheck)

    async def _check(self, precheck: BudgetPrecheck) -> None:
        """Refuse what its budgets never have room for and, where the code asks for that, what they have not now."""
        if precheck:
            await self._in_time("gates", precheck.check(self.store))

    def shaped(self, spec: TaskSpec, values: Mapping[str, Any], options: Options) -> Options:
        """What a job is asked for with, after the app's middleware has seen it; in order of declaration."""
        if not self.middleware:
            return options
        job = NewJob(self, spec, values, options)
        for middleware in self.middleware:
            middleware(job)
        return job.final()

    async def enqueue_on(
        self, conn: object, spec: TaskSpec, values: Mapping[str, Any], options: Options
    ) -> JobHandle[Any]:
        """Store one job when the caller's own transaction commits.

        No deadline and no shared round trip: both would act on the caller's connection behind its back.
        """
        options = self.shaped(spec, values, options)
        job, rules = build_job(spec, values, options, id=options.id or self.producer.new_id())
        if spec.budgets:
            precheck = BudgetPrecheck()
            precheck.add(spec, job)
            precheck.check_declared()
        return (await self._put_on(conn, [job], rules))[0]

    async def _put_on(self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule]) -> list[JobHandle[Any]]:
        """Into the store, which takes part in the caller's transaction, or into the outbox beside the caller's rows."""
        answers = await self._answers_on(conn, jobs, rules)
        return [
            JobHandle(self, id, task=job.lane.task, existing=existing)
            for job, (id, existing) in zip(jobs, answers, strict=True)
        ]

    async def _answers_on(
        self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule]
    ) -> list[tuple[bytes, bool]]:
        outbox = self._outbox()
        if outbox is None:
            stored = await joining(self.store, "enqueue").enqueue_on(conn, jobs, rules)
            return [(answer.id, answer.existing) for answer in stored]
        await outbox.put(conn, jobs, rules)
        # Whether a job is a duplicate is known when it is relayed, so none is called one here.
        return [(job.id, False) for job in jobs]

    async def enqueue_named(self, name: str, args: Mapping[str, Any], options: CallOptions) -> JobHandle[Any]:
        """Store one job of a task that may live in another program: declared here, else as a worker published it."""
        asked = self.read_options(PLAIN, options)
        spec = self._declared(name)
        if spec is None:
            if not isinstance(name, str):
                raise InvalidOption(
                    f"app.enqueue takes the name of a task, got {name!r:.80}",
                    fix="await send_email.enqueue(...), or give the task's name: 'email.send'",
                )
            spec = await self._look_up(name)
            self.check_queue(asked.queue or spec.queue)
        values = with_refs(dict(args), asked.after) if asked.after else args
        return await enqueue(self, spec, spec.signature.bind_named(values), asked)

    async def enqueue_asked(self, asked: Sequence[Asked], ids: Sequence[bytes] | None = None) -> list[JobHandle[Any]]:
        """Store jobs by their tasks' names, all or none, under these ids; a bad one is named by its index."""
        batch, new_id = Batch(self.shaped), self.producer.batcher().new_id
        for index, each in enumerate(asked):
            try:
                item = await self._asked_for(each)
            except UsageError as error:
                raise type(error)(f"jobs[{index}]: {error.message}", fix=error.fix) from error
            batch.add(index, item, new_id() if ids is None else ids[index])
        batch.refuse_if_too_large()
        return await self._send(batch, [])

    async def _asked_for(self, asked: Asked) -> JobSpec[Any]:
        options = self.read_options(PLAIN, asked.options)
        spec = self._declared(asked.task) or await self._look_up(asked.task)
        self.check_queue(options.queue or spec.queue)
        values = with_refs(dict(asked.args), options.after) if options.after else asked.args
        return JobSpec(self, spec, (), spec.signature.bind_named(values), options)

    def over(self, store: Store) -> Client:
        """The same, on another view of the store: for callers that may see a part of it only."""
        other = copy(self)
        other._connection = Connection(lambda: store)
        other.producer = Producer(other._connection, self._settings.enqueue_timeout_s)
        other._published = Published(other._connection)
        return other

    async def _look_up(self, name: str) -> TaskSpec:
        async def found() -> TaskSpec:
            await self.types.publish()
            return await self._published.spec(name, self._settings.max_payload_bytes)

        return await self._in_time("controls", found())

    async def _in_time(self, verb: str, asked: Awaitable[T]) -> T:
        """What is asked of the store before a job is stored."""
        timeout_s = self._settings.enqueue_timeout_s
        with followed() as sending:
            try:
                async with asyncio.timeout(timeout_s):
                    return await asked
            except TimeoutError as error:
                raise too_early(verb, timeout_s, sending) from error
            except StoreUnreachable as error:
                message = error.message.removesuffix(NOTHING_SENT)
                raise StoreUnreachable(f"{message}; nothing was stored", verb=verb, fix=error.fix) from error

    async def enqueue_many(
        self,
        jobs: Iterable[JobSpec[Any]],
        *,
        atomic: bool = True,
        ids: Sequence[str] | None = None,
        conn: object = None,
    ) -> list[JobHandle[Any]]:
        """Store all jobs or none; without `atomic`, chunk by chunk; with `conn`, when that transaction commits."""
        if conn is not None and not atomic:
            raise InvalidOption(
                "atomic=False with conn=: your transaction is all or nothing anyway",
                fix="leave atomic out; for more jobs than one call takes, call again before you commit",
            )
        handles: list[JobHandle[Any]] = []
        batch, count, new_id = Batch(self.shaped), 0, self.producer.batcher().new_id
        for count, item in enumerate(jobs, 1):
            if ids is not None and count > len(ids):
                raise InvalidOption(f"{len(ids)} ids for more jobs than that", fix="pass one id per job, in order")
            try:
                batch.add(count - 1, item, new_id() if ids is None else id_bytes(ids[count - 1]))
            except UsageError as error:
                if not handles:
                    raise
                raise _after_chunks(error, len(handles)) from error
            if atomic:
                batch.refuse_if_too_large()
            elif batch.is_chunk:
                handles += await self._send(batch, handles)
                batch = Batch(self.shaped)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        if ids is not None and count != len(ids):
            raise InvalidOption(f"{len(ids)} ids for {count} jobs", fix="pass one id per job, in order")
        return handles + await self._send(batch, handles, conn)

    async def enqueue_work(self, work: Work[Any], conn: object = None) -> Any:
        """Store a chain, a group or a job with all that is nested in it, as one flow; the handle of its end."""
        flow = getattr(work, "unsure", None) or Flow(self, work.name or work.label)
        output = flow.output(work)
        try:
            await flow.enqueue(conn=conn)
        except (EnqueueTimeout, NotStored):
            work.unsure = flow  # to ask again is to ask for the same jobs
            raise
        if hasattr(work, "unsure"):
            del work.unsure
        return output

    async def enqueue_graph(
        self,
        jobs: Sequence[Job],
        rules: Sequence[GateRule],
        precheck: BudgetPrecheck,
        conn: object = None,
        *,
        wait_ms: int | None = None,
    ) -> list[tuple[bytes, bool]]:
        """Store all jobs of a flow or none: (id, whether it was there) of each. Parents come first in `jobs`."""
        if conn is None:
            await self._check(precheck)
            answers = await self.producer.enqueue_batch(
                jobs, rules, again="await its .enqueue() again", wait_ms=wait_ms
            )
            return [(answer.id, answer.existing) for answer in answers]
        if wait_ms is not None:
            refuse_waiting()
        precheck.check_declared()
        if self._outbox() is not None:
            _refuse_late_duplicates(jobs)
        return await self._answers_on(conn, jobs, rules)

    def read_options(self, options: Options, given: CallOptions) -> Options:
        """`options` with what one call asks for; what this release cannot keep is refused, never ignored."""
        asked = options.replace(**given)
        if asked.queue is not None:
            self.check_queue(asked.queue)
        if asked.retry is not None and asked.retry.function is not None:
            raise InvalidOption(
                "retry= of one call cannot be a function, which no worker could find again",
                fix="declare it with @app.task(retry=...), or pass Retry(...) or a list",
            )
        return asked

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the app did not declare, if it declared any, and the one whose jobs are believed."""
        refuse_alerts(queue)
        known = self._settings.queues
        if known is not None and queue not in known:
            raise UnknownQueue(f"the app has no queue {queue!r}", fix=did_you_mean(queue, known))

    async def _send(self, batch: Batch, before: Sequence[JobHandle[Any]], conn: object = None) -> list[JobHandle[Any]]:
        if not batch.jobs:
            return []
        rules = list(batch.rules.values())
        try:
            if conn is not None:
                if batch.wait_ms is not None:
                    refuse_waiting()
                batch.precheck.check_declared()
                return await self._put_on(conn, batch.jobs, rules)
            await self._check(batch.precheck)
            stored = [handle.id for handle in before]
            answers = await self.producer.enqueue_batch(batch.jobs, rules, stored, wait_ms=batch.wait_ms)
        except UsageError as error:
            if not before:
                raise
            # The store counts from the first job of its own call.
            raise _after_chunks(error, len(before), batch.place(len(before))) from error
        return self._handles(batch.jobs, answers)

    def _handles(self, jobs: Sequence[Job], answers: Sequence[Enqueued]) -> list[JobHandle[Any]]:
        return [
            JobHandle(self, answer.id, task=job.lane.task, existing=answer.existing)
            for job, answer in zip(jobs, answers, strict=True)
        ]


def _refuse_late_duplicates(jobs: Sequence[Job]) -> None:
    """Through an outbox jobs arrive in batches: what waits for one that is found to be a duplicate misses it."""
    waited_for = {parent for job in jobs for parent in job.after}
    for job in jobs:
        if job.unique is not None and job.id in waited_for:
            raise InvalidOption(
                f"a job of {job.lane.task} has a unique key, others of its flow wait for it, and an outbox cannot tell "
                "whether it is a duplicate",
                fix="leave unique= out, or enqueue it first and pass its handle",
            )


def _after_chunks(error: UsageError, stored: int, place: str = "") -> UsageError:
    """The same refusal, saying what the chunks before it have already done."""
    return type(error)(f"{place}{error.message}; the {stored:,} jobs before are stored", fix=error.fix)
