"""Asks for work in the name of an app, follows what becomes of it, and says something to jobs that wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack
from weakref import WeakSet

from limpet.client.client import Client
from limpet.client.flow import Flow
from limpet.client.flow_handle import FlowHandle
from limpet.client.handle import JobHandle
from limpet.client.options import CallOptions
from limpet.client.producer import Connection
from limpet.client.registry import Registry
from limpet.client.work import JobSpec
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Enqueued
from limpet.ops import EventStream, Operator, Schedules, Waits
from limpet.runtime.includes import Includes
from limpet.stores.base import SignalAnswer, Store


class Asking:
    """What a program asks of the store through its app. `Limpet` makes the parts that are asked."""

    _client: Client
    _connection: Connection
    _includes: Includes
    _registry: Registry
    _streams: WeakSet[EventStream]

    @property
    def store(self) -> Store:
        """The store of this process; it connects with its first verb and is opened again after a fork."""
        return self._connection.store

    async def enqueue(
        self, name: str, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> JobHandle[Any]:
        """Store one job by its task's name; `args` is one object by parameter name.

        A task that this program does not declare queues as its workers published it. A name that no worker
        knows is accepted: the job waits for a worker that does.

        >>> import asyncio
        >>> app = Limpet("sqlite://")
        >>> async def main() -> str:
        ...     async with app:
        ...         job = await app.enqueue("email.send", {"to": "a@b.c"}, priority="critical")
        ...         return (await job.status()).state
        >>> print(asyncio.run(main()))
        ready
        """
        return await self._client.enqueue_named(name, {} if args is None else args, options)

    async def enqueue_many(
        self,
        jobs: Iterable[JobSpec[Any]],
        *,
        atomic: bool = True,
        ids: Sequence[str] | None = None,
        conn: Any = None,
    ) -> list[JobHandle[Any]]:
        """Store many jobs in one step, all or none; handles come back in order, duplicates marked `existing`.

        A bad job refuses all and is named by its index. More than 20,000 jobs or 16 MiB is BatchTooLarge,
        unless `atomic=False`, which stores them chunk by chunk. `ids` makes asking again after a timeout safe.
        `conn` is your own database connection: the jobs are there if and when its transaction commits.

        >>> import asyncio
        >>> app = Limpet("sqlite://")
        >>> @app.task
        ... def resize(image: int) -> None: ...
        >>> async def main() -> int:
        ...     async with app:
        ...         return len(await app.enqueue_many(resize.job(n) for n in range(100)))
        >>> asyncio.run(main())
        100
        """
        return await self._client.enqueue_many(jobs, atomic=atomic, ids=ids, conn=conn)

    def client_on(self, store: Store) -> Client:
        """What asks for jobs, on a view of the app's store: for faces whose callers may see a part of it only."""
        return self._client if store is self.store else self._client.over(store)

    def get(self, id: str) -> JobHandle[Any]:
        """The handle of a job whose id you kept. Nothing is asked until you ask it."""
        return self._client.handle(id)

    def flow(self, name: str) -> Flow:
        """A new flow: `add` jobs to it, then `enqueue` stores all of them in one step."""
        return Flow(self._client, name)

    def get_flow(self, id: str) -> FlowHandle:
        """The handle of a flow whose id you kept. Nothing is asked until you ask it."""
        return self._client.flow_handle(id)

    def events(self, query: str = "") -> EventStream:
        """What happens to jobs from now on: `async for event in app.events("queue:mail state:dead")`.

        A `JobEvent` for each job that moves, `JobCounts` where there are too many, an `EventGap` where some were lost.
        `query` may ask for state, queue, task and id. Each event comes at most once, and workers tell theirs within a
        beat (5 s) of the first reader. `async with` listens from that moment on.

        >>> import asyncio
        >>> app = Limpet("sqlite://")
        >>> @app.task(name="add")
        ... async def add(a: int, b: int) -> int:
        ...     return a + b
        >>> async def main() -> None:
        ...     async with app, app.events("task:add") as events:
        ...         await add.enqueue(1, 2)
        ...         await app.work(until_empty=True)
        ...         async for event in events:
        ...             print(event.kind, event.state)
        ...             if event.state == "succeeded":
        ...                 break
        >>> asyncio.run(main())
        enqueued ready
        claimed running
        succeeded succeeded
        """
        stream = Operator(self.store, "client").live_events(query)
        self._streams.add(stream)
        return stream

    # -- saying something to a job that waits

    async def signal(
        self, job: JobHandle[Any] | str, event: str, value: Any = None, *, task: str | None = None
    ) -> SignalAnswer:
        """Give a job an event that it waits for, or will wait for: its `wait_for(event)` answers `value`.

        `job` is a handle, an id, or the unique key that the job was enqueued with (`task` says of which task, if
        several have such a key). Answers "woken" (it continues), "kept" (for later), "already" (it was given this
        event before, and the first stands) or "finished". Raises JobNotFound.

        >>> import asyncio
        >>> from limpet import current_job
        >>> app = Limpet("sqlite://")
        >>> @app.task
        ... async def ship(order: int) -> str:
        ...     return f"{order} was paid by {await current_job().wait_for('paid')}"
        >>> async def main() -> str:
        ...     async with app:
        ...         job = await ship.options(unique="order:7").enqueue(7)
        ...         await app.work(until_empty=True)           # it waits, without a worker
        ...         await app.signal("order:7", "paid", "card")
        ...         await app.work(until_empty=True)
        ...         return await job.result()
        >>> asyncio.run(main())
        '7 was paid by card'
        """
        said = await Waits(self.store, "client").signal(_named(job), event, value, task=task, log=False)
        return said.answer

    async def approve(
        self, job: JobHandle[Any] | str, *, by: str, comment: str = "", name: str | None = None, task: str | None = None
    ) -> SignalAnswer:
        """Say yes to what a job asks a person (`current_job().approval(question)`), in the name of `by`.

        Answers as `signal` does. `name` decides on an approval that the job has not come to yet, or on one of several.
        Every decision leaves a line in the audit log.
        """
        said = await Waits(self.store, by).approve(_named(job), comment=comment, name=name, task=task)
        return said.answer

    async def reject(
        self, job: JobHandle[Any] | str, *, by: str, comment: str = "", name: str | None = None, task: str | None = None
    ) -> SignalAnswer:
        """Say no to what a job asks a person; the rest is as for `approve`."""
        said = await Waits(self.store, by).reject(_named(job), comment=comment, name=name, task=task)
        return said.answer

    @property
    def schedules(self) -> Schedules[JobHandle[Any]]:
        """Schedules at run time: list, get, add, change, pause, resume, remove, run_now, backfill, next."""
        self._includes.load()

        def handle(answer: Enqueued, task: str) -> JobHandle[Any]:
            return JobHandle(self._client, answer.id, task=task, existing=answer.existing)

        return Schedules(self.store, "client", handle=handle, tasks=self._registry.specs)


def _named(job: JobHandle[Any] | str) -> bytes | str:
    return id_bytes(job.id) if isinstance(job, JobHandle) else job
