"""Turns calls into stored jobs: one, many at once, or by name; the desk that tasks and handles ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from holdfast.client.bridge import Bridge
from holdfast.client.connection import Connection
from holdfast.client.handle import Explain, Explained, JobHandle
from holdfast.client.options import CallOptions
from holdfast.client.producer import Producer
from holdfast.client.registry import Published
from holdfast.client.task import JobSpec
from holdfast.core.codec import MAX_BYTES
from holdfast.core.errors import BatchTooLarge, InvalidArguments, InvalidOption, UnknownQueue, UsageError
from holdfast.core.gate import GateRule
from holdfast.core.ids import id_bytes
from holdfast.core.job import Job
from holdfast.core.limit import did_you_mean
from holdfast.core.payload import decode_json
from holdfast.core.task import PLAIN, Options, TaskSpec, build_job
from holdfast.stores.base import MAX_BATCH_BYTES, MAX_BATCH_JOBS, Store

# Building jobs is pure computation; every so many the loop gets a turn, so a big batch delays nobody by more than ms.
_TURN: Final = 500
# One chunk of a batch that need not be atomic: large enough to be fast, small enough to stay far from the bounds.
_CHUNK_JOBS: Final = 5_000

Injected = Callable[[TaskSpec], Mapping[str, Any] | None]


class ClientSettings(Struct, frozen=True, kw_only=True):
    """What an app decides for everything it enqueues."""

    enqueue_timeout_s: float = 5.0
    max_payload_bytes: int = MAX_BYTES
    queues: frozenset[str] | None = None  # None: queues exist by use


class Client:
    """The asking half of an app, for every event loop and thread of the process."""

    def __init__(
        self,
        connection: Connection,
        bridge: Bridge,
        settings: ClientSettings,
        *,
        specs: Mapping[str, TaskSpec],
        explain: Explain,
        injected: Injected,
    ) -> None:
        self.bridge = bridge
        self.injected = injected  # answers what a worker of this process would inject, None without one
        self._connection = connection
        self._settings = settings
        self._specs = specs
        self._explain = explain
        self._producer = Producer(lambda: connection.store, settings.enqueue_timeout_s)
        self._published = Published(lambda: connection.store)

    # -- what handles ask

    @property
    def store(self) -> Store:
        """The store of this process."""
        return self._connection.store

    async def explain(self, id: bytes) -> Explained:
        """Why a job is where it is."""
        return await self._explain(self.store, id)

    def decode_result(self, task: str, raw: bytes | None) -> Any:
        """A result, rebuilt from the return annotation when the task is known here."""
        spec = self._specs.get(task)
        return decode_json(raw) if spec is None else spec.signature.decode_result(raw)

    def handle(self, id: str) -> JobHandle[Any]:
        """The handle of a job whose id is known."""
        return JobHandle(self, id_bytes(id), task="", existing=True)

    # -- asking for work

    async def enqueue(self, spec: TaskSpec, values: Mapping[str, Any], options: Options) -> JobHandle[Any]:
        """Store one job."""
        id = options.id or self._producer.new_id()
        job, rules = build_job(spec, values, options, id=id)
        answer = await self._producer.enqueue(job, rules)
        return JobHandle(self, answer.id, task=spec.name, existing=answer.existing)

    async def enqueue_named(self, name: str, args: Mapping[str, Any], options: CallOptions) -> JobHandle[Any]:
        """Store one job of a task that may live in another program: declared here, else as a worker published it."""
        asked = self.read_options(PLAIN, options)
        spec = self._specs.get(name)
        if spec is None:
            spec = await self._published.spec(name, self._settings.max_payload_bytes)
            self.check_queue(asked.queue or spec.queue)
        return await self.enqueue(spec, spec.signature.bind_named(args), asked)

    async def enqueue_many(
        self, jobs: Iterable[JobSpec], *, atomic: bool = True, ids: Sequence[str] | None = None
    ) -> list[JobHandle[Any]]:
        """Store all jobs or none; without `atomic`, chunk by chunk."""
        if atomic:
            items = list(islice(jobs, MAX_BATCH_JOBS + 1))
            if len(items) > MAX_BATCH_JOBS:
                raise _too_large(f"more than {MAX_BATCH_JOBS:,} jobs")
            if ids is not None and len(ids) != len(items):
                raise InvalidOption(f"{len(ids)} ids for {len(items)} jobs", fix="pass one id per job, in order")
            return await self._enqueue_chunk(items, 0, ids)
        handles: list[JobHandle[Any]] = []
        source = iter(jobs)
        while chunk := list(islice(source, _CHUNK_JOBS)):
            first = len(handles)
            handles += await self._enqueue_chunk(chunk, first, None if ids is None else ids[first : first + len(chunk)])
        return handles

    def read_options(self, options: Options, given: CallOptions) -> Options:
        """`options` with what one call asks for; what this release cannot keep is refused, never ignored."""
        asked = options.replace(**given)
        if asked.queue is not None:
            self.check_queue(asked.queue)
        if asked.conn is not None:
            raise InvalidOption("conn= is not supported yet", fix="enqueue after your transaction has committed")
        if asked.retry is not None and asked.retry.function is not None:
            raise InvalidOption(
                "retry= of one call cannot be a function, which no worker could find again",
                fix="declare it with @app.task(retry=...), or pass Retry(...) or a list",
            )
        return asked

    def check_queue(self, queue: str) -> None:
        """Refuse a queue that the app did not declare, if it declared any."""
        known = self._settings.queues
        if known is not None and queue not in known:
            raise UnknownQueue(f"the app has no queue {queue!r}", fix=did_you_mean(queue, known))

    async def _enqueue_chunk(
        self, items: Sequence[JobSpec], first: int, ids: Sequence[str] | None
    ) -> list[JobHandle[Any]]:
        jobs, rules = await self._build(items, first, ids)
        if not jobs:
            return []
        answers = await self._producer.enqueue_batch(jobs, list(rules.values()))
        return [
            JobHandle(self, answer.id, task=item.spec.name, existing=answer.existing)
            for item, answer in zip(items, answers, strict=True)
        ]

    async def _build(
        self, items: Sequence[JobSpec], first: int, ids: Sequence[str] | None
    ) -> tuple[list[Job], dict[str, GateRule]]:
        made = self._producer.ids(len(items)) if ids is None else [id_bytes(id) for id in ids]
        jobs: list[Job] = []
        rules: dict[str, GateRule] = {}
        size = 0
        for index, item in enumerate(items):
            try:
                job, declared = _build_one(item, made[index])
            except UsageError as error:
                raise type(error)(f"jobs[{first + index}]: {error.message}", fix=error.fix) from error
            jobs.append(job)
            size += len(job.args)
            for rule in declared:
                rules[rule.key] = rule
            if index % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        if size > MAX_BATCH_BYTES:
            raise _too_large(f"{size:,} bytes of arguments")
        return jobs, rules


def _build_one(item: object, id: bytes) -> tuple[Job, Sequence[GateRule]]:
    if not isinstance(item, JobSpec):
        if isinstance(item, Coroutine):
            item.close()  # task.enqueue(...) where task.job(...) was meant: it will never run
        raise InvalidArguments(f"a {type(item).__qualname__} is not a job", fix="make it with task.job(...)")
    signature = item.spec.signature
    if not signature.required.issubset(item.values):
        signature.bind_named(item.values)  # raises, naming what is missing
    return build_job(item.spec, item.values, item.options, id=item.options.id or id)


def _too_large(what: str) -> BatchTooLarge:
    return BatchTooLarge(
        f"the batch has {what}; all or nothing works up to {MAX_BATCH_JOBS:,} jobs and {MAX_BATCH_BYTES:,} bytes",
        fix="pass atomic=False to store it in chunks",
    )
