"""Introduces the others to each other: one object that declares tasks, asks for work and runs it."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from limpet.client.bridge import Bridge
from limpet.client.client import Client, ClientSettings
from limpet.client.flow import Flow
from limpet.client.flow_handle import FlowHandle
from limpet.client.handle import JobHandle
from limpet.client.hooks import HookOptions
from limpet.client.injection import OpenResources
from limpet.client.new_job import EnqueueMiddleware, checked, refuse_misfit
from limpet.client.options import CallOptions, ScheduleOptions
from limpet.client.producer import Connection
from limpet.client.registry import Registry
from limpet.client.task import AsyncTask, SyncTask, Task
from limpet.client.work import JobSpec
from limpet.config import Config, load_config
from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.endings.overrides import ClassifyOption, classifiers_of
from limpet.core.errors import InvalidOption, WrongContext
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.job import Enqueued
from limpet.core.jobs.state import FINISHED, State
from limpet.core.records.explanation import Explanation
from limpet.core.redaction.rule import parse_rules
from limpet.core.schedules.when import When
from limpet.core.tasks.ai_queues import AIQueueOptions, AIQueues
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.naming import checked_name, checked_names
from limpet.core.tasks.queue import Queue, queue_name
from limpet.core.tasks.task import TaskOptions, TaskSpec
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.foreign_words import APP, answers
from limpet.ops import EventStream, Flows, Operator, Schedules, Waits
from limpet.outbox import Outbox, parse_outbox, refuse_needless
from limpet.runtime.current import current
from limpet.runtime.includes import Includes
from limpet.runtime.loading import find_ref
from limpet.runtime.settings import (
    PER_CORE,
    AppRef,
    Middleware,
    Parts,
    Resource,
    WorkerEvents,
    WorkerPlan,
    WorkerSettings,
    WorkReport,
)
from limpet.runtime.timetable import Timetable
from limpet.runtime.worker import Worker
from limpet.stores.base import SignalAnswer, Store
from limpet.stores.open import open_store

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
TaskT = TypeVar("TaskT", bound=Task[..., Any])


class Limpet:
    """A queue and the tasks that run on it.

    The store is the URL in code, else LIMPET_URL, else the one of limpet.toml, else the file
    `limpet.db` in the working folder. Nothing is opened before it is used. `outbox` is the URL of your own
    database, for a store that cannot take part in its transactions: `conn=` writes jobs there, and the
    `limpet outbox` command relays them. `include` names modules that declare tasks, which import the app: they are
    imported when a worker starts, or when a task is asked for by its name. `redact` names what no face may show of any
    job, by key or by path: `redact=["password", "args.card.number"]`.

    >>> import asyncio
    >>> app = Limpet("sqlite://")                     # in memory: for tests and trials
    >>> @app.task
    ... async def add(a: int, b: int) -> int:
    ...     return a + b
    >>> async def main() -> int:
    ...     async with app:
    ...         job = await add.enqueue(1, b=2)
    ...         await app.work(until_empty=True)
    ...         return await job.result(timeout=5)
    >>> asyncio.run(main())
    3
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        outbox: str | None = None,
        queues: Iterable[str | Queue] | None = None,
        include: Iterable[str] = (),
        max_payload_bytes: int = MAX_BYTES,
        max_result_bytes: int = MAX_BYTES,
        redact: Iterable[str] = (),
        classify: ClassifyOption = (),
        enqueue_timeout: Duration = 5,
        code_version: str | None = None,
    ) -> None:
        if namespace == "":
            raise InvalidOption("namespace='' is not a name", fix="leave it out for the namespace 'default'")
        self._code_version = None if code_version is None else checked_name(code_version, what="code_version")
        self._code_url, self._code_namespace, self._code_outbox = url, namespace, outbox
        self._flag_url: str | None = None
        self._flag_namespace: str | None = None
        self._config: Config | None = None
        self._outbox: Outbox | None = None
        listed = list(queues) if isinstance(queues, Iterable) and not isinstance(queues, str) else None
        self._classifiers = classifiers_of(classify)
        specs: dict[str, TaskSpec] = {}
        hidden = parse_rules(redact)
        self._resources: list[Resource] = []
        self._hooks: list[Resource] = []
        self._middleware: list[Middleware] = []
        self._connection = Connection(lambda: open_store(self.url, self.namespace))
        self._streams: WeakSet[EventStream] = WeakSet()
        self._includes = Includes(self, include)
        self._bridge = Bridge(_loop_of_running_job)
        self._opened = OpenResources(_loop_of_running_job)
        self._client = Client(
            self._connection,
            self._bridge,
            ClientSettings(
                enqueue_timeout_s=to_ms(enqueue_timeout, what="enqueue_timeout") / 1000,
                max_payload_bytes=max_payload_bytes,
                queues=None if queues is None else frozenset(_names_of(queues if listed is None else listed)),
            ),
            specs=specs,
            include=self._includes.load,
            explain=_explain,
            flows=_flows,
            injected=self._opened.for_task,
            outbox=lambda: self.outbox,
            redact=hidden,
        )
        self._registry = Registry(self._client, specs, max_payload_bytes, max_result_bytes, hidden)
        for queue in listed or ():
            if isinstance(queue, Queue):
                self._registry.declare_queue(queue)

    # -- where the jobs are

    @property
    def url(self) -> str:
        """The store's URL, whichever source won."""
        return self._settings.url.value

    @property
    def namespace(self) -> str:
        """The namespace, whichever source won."""
        return self._settings.namespace.value

    @property
    def outbox(self) -> Outbox | None:
        """The outbox of this app, if it has one; refused where the store itself is in that database."""
        found = self._settings.outbox
        if self._outbox is None and found is not None:
            place = parse_outbox(found.value)
            refuse_needless(place, self.url)
            self._outbox = Outbox(place, self.namespace)
        return self._outbox

    @property
    def store(self) -> Store:
        """The store of this process; it connects with its first verb and is opened again after a fork."""
        return self._connection.store

    def rebind(self, url: str | None = None, *, namespace: str | None = None) -> None:
        """Use another store than the code names: `--url` of a command, or a store in memory for a test.

        Not while a store is open: `await app.close()` first.
        """
        if self._connection.is_open:
            raise WrongContext("the app's store is open", fix="rebind before the first use, or after app.close()")
        self._flag_url, self._flag_namespace = url, namespace
        self._config = self._outbox = None

    @property
    def _settings(self) -> Config:
        if self._config is None:
            self._config = load_config(
                flag_url=self._flag_url,
                code_url=self._code_url,
                flag_namespace=self._flag_namespace,
                code_namespace=self._code_namespace,
                code_outbox=self._code_outbox,
            )
        return self._config

    async def __aenter__(self) -> Self:
        await self.store.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the store and of the bridge's thread; a later use opens them again."""
        for stream in list(self._streams):
            await stream.aclose()
        await self._connection.close()
        self._bridge.close()

    # -- declaring

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The declared tasks by name, those of included modules too."""
        self._includes.load()
        return MappingProxyType(self._registry.tasks)

    # An async function is a function too, so the first two overloads overlap; the more exact one comes first.
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, fn: None = None, /, **options: Unpack[TaskOptions]) -> _Declare: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Declare a function as a task: `@app.task` or `@app.task(queue="mail", retry=3, ...)`.

        Options are checked now; a name that is taken is InvalidTask.

        >>> app = Limpet("sqlite://")
        >>> @app.task(name="email.send", queue="mail", priority="critical", timeout=30)
        ... async def send_email(to: str) -> None: ...
        >>> app.tasks["email.send"]
        <task email.send>
        """
        declare = _Declare(self._registry, options)
        return declare if fn is None else declare(fn)

    def schedule(
        self,
        when: When,
        args: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[TaskT], TaskT]:
        """Run the task below at the times of `Cron`, `Every` or `Once`; answers the task itself.

        `args` is one object by parameter name, checked now. The schedule is called like the task unless it has a
        `name`; several may stand above one task. Workers store it when they start.

        >>> from limpet import Cron, Limpet
        >>> app = Limpet("sqlite://")
        >>> @app.schedule(Cron("0 8 * * *", tz="Europe/Paris"), {"language": "fr"})
        ... @app.task(name="digest")
        ... async def digest(language: str) -> None: ...
        >>> digest
        <task digest>
        """

        return self._registry.schedule(when, args or {}, name, options)

    @overload
    def on_dead(self, fn: F, /) -> F: ...
    @overload
    def on_dead(self, fn: None = None, /, **options: Unpack[HookOptions]) -> Callable[[F], F]: ...
    def on_dead(self, fn: Any = None, /, **options: Unpack[HookOptions]) -> Any:
        """Call `fn(job)` with the record of every job that dies, at least once: `@app.on_dead` or `@app.on_dead(...)`.

        Each call is a job of its own in the queue `limpet.hooks`, with the usual retries; the step that ends a job
        stores it, so that a crash loses none. `tasks=[...]` and `queues=[...]` say whose deaths; `name=` is the name
        of its task. Hooks count from the first start of a worker with them.

        >>> app = Limpet("sqlite://")
        >>> @app.on_dead(queues=["mail"])
        ... async def alert(job: JobRecord) -> None:
        ...     print(f"{job.task} {job.id} died: {job.reason}")
        """
        return self._hook(fn, (State.dead,), options)

    @overload
    def on_finished(self, fn: F, /) -> F: ...
    @overload
    def on_finished(
        self, fn: None = None, /, *, states: Iterable[State | str] = ..., **options: Unpack[HookOptions]
    ) -> Callable[[F], F]: ...
    def on_finished(
        self, fn: Any = None, /, *, states: Iterable[State | str] = FINISHED, **options: Unpack[HookOptions]
    ) -> Any:
        """The same for every end, or for those of `states`: "succeeded", "dead", "cancelled".

        >>> app = Limpet("sqlite://")
        >>> @app.on_finished(states=["succeeded", "cancelled"], tasks=["report"])
        ... def tell(job: JobRecord) -> None:
        ...     print(f"report {job.id} is {job.state}")
        """
        return self._hook(fn, states, options)

    def _hook(self, fn: Any, states: Iterable[State | str], options: HookOptions) -> Any:
        def declare(fn: F) -> F:
            self._registry.hooks.declare(fn, states, options)
            return fn

        return declare if fn is None else declare(fn)

    @property
    def schedules(self) -> Schedules[JobHandle[Any]]:
        """Schedules at run time: list, get, add, change, pause, resume, remove, run_now, backfill, next."""
        self._includes.load()

        def handle(answer: Enqueued, task: str) -> JobHandle[Any]:
            return JobHandle(self._client, answer.id, task=task, existing=answer.existing)

        return Schedules(self.store, "client", handle=handle, tasks=self._registry.specs)

    def resource(self, fn: F) -> F:
        """Declare something that jobs share (a pool, a client): opened once per worker process, closed at its end.

        The function is an async or plain generator that yields the value once. A task asks for it with
        `db: Pool = Inject(pool)`.
        """
        resource = self._opened.watched(fn)
        self._resources.append(resource)
        return resource

    def on_startup(self, fn: F) -> F:
        """Call `fn()` in every worker process before its first job."""

        async def hook() -> AsyncIterator[None]:
            await _finish(fn())
            yield

        self._hooks.append(hook)
        return fn

    def on_shutdown(self, fn: F) -> F:
        """Call `fn()` in every worker process after its last job."""

        async def hook() -> AsyncIterator[None]:
            yield
            await _finish(fn())

        self._hooks.append(hook)
        return fn

    def middleware(self, fn: Middleware) -> Middleware:
        """Wrap every attempt in `async def fn(job, run)`, which awaits `run()`; the first declared is outermost."""
        refuse_misfit(fn, 2, takes="a JobContext and run", shape="async def fn(job: JobContext, run)")
        self._middleware.append(fn)
        return fn

    def enqueue_middleware(self, fn: EnqueueMiddleware) -> EnqueueMiddleware:
        """Call `fn(job)` with each `NewJob` that this app is about to store, in order of declaration.

        It may add to the job's meta, change its options, or raise, and then nothing is stored. Every way to enqueue
        from this app passes it: one job or many, by name, flows, `conn=`, an outbox, sync code. It runs where the
        caller is, so context variables of a request are there; it must not wait.

        >>> from contextvars import ContextVar
        >>> app = Limpet("sqlite://")
        >>> request_id = ContextVar("request_id", default="none")
        >>> @app.enqueue_middleware
        ... def add_request_id(job: NewJob) -> None:
        ...     job.meta["request_id"] = request_id.get()
        """
        self._client.middleware.append(checked(fn))
        return fn

    def ai_queues(self, name: str = "ai", **numbers: Unpack[AIQueueOptions]) -> AIQueues:
        """Declare two queues for calls to models, NAME-fast and NAME-heavy, with numbers that keep both healthy.

        `fast` retries 3 times, 1 s apart, and runs 5 jobs at once over all workers; `heavy` retries twice, after 10 and
        20 s, and runs 2 at once. What still fails is dead, with its cause, for people. Call it above the tasks, and
        pass the queues to them; every number may be given: fast_retries, fast_delay, fast_concurrency, heavy_retries,
        heavy_delay, heavy_factor, heavy_concurrency (None: no ceiling).

        >>> app = Limpet("sqlite://")
        >>> ai = app.ai_queues(heavy_concurrency=3)
        >>> @app.task(queue=ai.fast, name="classify")
        ... async def classify(text: str) -> str: ...
        >>> @app.task(queue=ai.heavy, name="summarise", timeout=600)
        ... async def summarise(document: str) -> str: ...
        >>> summarise.spec.queue
        'ai-heavy'
        """
        made = AIQueues.of(name, numbers)
        for queue in (made.fast, made.heavy):
            self._registry.declare_queue(queue)
        return made

    # -- asking for work

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

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for an awaitable from code without an event loop: `app.run(job.result(5))`.

        One loop thread per app and process; in a sync task it uses the worker's loop. Inside a running
        loop it raises WrongContext.

        >>> app = Limpet("sqlite://")
        >>> @app.task
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}"
        >>> job = greet.enqueue_sync("Ada")
        >>> report = app.run(app.work(until_empty=True))
        >>> app.run(job.result(timeout=5))
        'Hello, Ada'
        >>> app.run(app.close())
        """
        attempt = current.get()
        if attempt is not None and attempt.thread == threading.get_ident():
            return attempt.context.run(awaitable)
        return self._bridge.run(awaitable)

    # -- running work

    async def work(
        self,
        queues: Iterable[str | Queue] | None = None,
        concurrency: int = 100,
        grace: Duration = 25,
        stop: asyncio.Event | None = None,
        until_empty: bool = False,
        ageing: int | None = None,
        *,
        threads: int = 16,
        job_processes: int | None = None,
        reserve: int | None = None,
        claim_ahead: Duration = 0.01,
        hooks: bool = True,
    ) -> WorkReport:
        """Be a worker inside this process, until cancelled, `stop` is set, or (`until_empty`) nothing is left.

        Ending means: claim no more, finish what fits into `grace` seconds, hand the rest back unspent. No
        signal handlers are installed; the `limpet worker` command does that. With `ageing=20` one job in 20 is
        claimed past more urgent ones, so that no priority starves.

        `concurrency`, `threads` and `job_processes` (one per core) are what jobs of any priority get. On top of the
        first two, `reserve` places are kept for urgent jobs alone: by default a tenth, where a task is critical or
        high. No more work is claimed ahead of a free place than takes `claim_ahead` seconds; 0 claims none ahead.
        The hooks of the app run here too, whatever `queues` says, unless `hooks=False`.
        """
        chosen = None if queues is None else _names_of(queues)
        for queue in {*(chosen or ())} - {HOOKS}:
            self._client.check_queue(queue)
        await self.publish()
        plan = WorkerPlan(
            store=self.store,
            parts=self.parts(),
            settings=WorkerSettings(
                queues=chosen,
                concurrency=concurrency,
                threads=threads,
                job_processes=PER_CORE if job_processes is None else job_processes,
                reserve=reserve,
                ageing=ageing,
                ahead_ms=to_ms(claim_ahead, what="claim_ahead"),
                grace_ms=to_ms(grace, what="grace"),
                hooks=hooks,
            ),
            app_ref=None if (ref := find_ref(self)) is None else AppRef(ref, self.url, self.namespace),
            events=WorkerEvents(on_other_store=self.publish),
        )
        return await Worker(plan).run(stop, until_empty)

    async def publish(self) -> int:
        """Write what tasks, schedules and queues declare into the store, for programs without this code.

        Workers do it when they start. A schedule that live workers declare otherwise is replaced once a worker with
        this code lives. Answers how many tasks changed.
        """
        self._includes.load()
        registry = self._registry
        changed = await registry.publish(self.store, self._settings.file.retention.of_queues())
        if registry.schedules:
            timetable = Timetable(self.store, tuple(registry.schedules.values()), registry.specs)
            await timetable.declare(await self.store.now(), lives=False)
        return changed

    def parts(self) -> Parts:
        """What a worker process needs of this app."""
        self._includes.load()
        return Parts(
            tasks=MappingProxyType(self._registry.specs),
            resources=tuple(self._resources),
            hooks=tuple(self._hooks),
            middleware=tuple(self._middleware),
            classifiers=self._classifiers,
            schedules=tuple(self._registry.schedules.values()),
            code_version=self._code_version or os.environ.get("LIMPET_CODE_VERSION", ""),
        )

    if not TYPE_CHECKING:
        __getattr__ = answers("a Limpet app", APP)

    def __repr__(self) -> str:
        return f"<Limpet {len(self._registry.tasks)} tasks>"


class _Declare:
    """`@app.task(...)` waiting for its function."""

    def __init__(self, registry: Registry, options: TaskOptions) -> None:
        self._registry = registry
        self._options = options

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> SyncTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any]) -> Any:
        return self._registry.declare(fn, self._options)


def _flows(store: Store) -> Flows:
    return Flows(store, "client")


def _names_of(queues: Iterable[str | Queue]) -> tuple[str, ...]:
    """The names of queues that an app or a worker lists; text is no list."""
    if not isinstance(queues, str) and isinstance(queues, Iterable):
        queues = [queue_name(queue, what="queues") for queue in queues]
    return checked_names(cast(Iterable[str], queues), what="queues")


def _named(job: JobHandle[Any] | str) -> bytes | str:
    return id_bytes(job.id) if isinstance(job, JobHandle) else job


async def _explain(store: Store, id: bytes) -> Explanation:
    return await Operator(store, "client").explain(id_text(id))


def _loop_of_running_job() -> asyncio.AbstractEventLoop | None:
    attempt = current.get()
    return None if attempt is None else attempt.loop


async def _finish(made: object) -> None:
    if inspect.isawaitable(made):
        await made
