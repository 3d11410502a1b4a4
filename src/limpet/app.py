"""Introduces the others to each other: one object that declares tasks, asks for work and runs it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakSet

from limpet.app_asking import Asking
from limpet.app_declaring import Declaring
from limpet.client.bridge import Bridge
from limpet.client.client import Client, ClientSettings
from limpet.client.injection import OpenResources
from limpet.client.producer import Connection
from limpet.client.registry import Registry
from limpet.client.task import Task
from limpet.config import Config, load_config
from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.endings.overrides import ClassifyOption, classifiers_of
from limpet.core.errors import InvalidOption, WrongContext
from limpet.core.jobs.ids import id_text
from limpet.core.records.explanation import Explanation
from limpet.core.redaction.rule import parse_rules
from limpet.core.tasks.codec import MAX_BYTES
from limpet.core.tasks.naming import checked_name, checked_names
from limpet.core.tasks.queue import Queue, queue_name
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.foreign_words import APP, answers
from limpet.ops import EventStream, Flows, Operator
from limpet.ops.alert_runner import AlertRunner
from limpet.ops.alerts import publish_rules
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
from limpet.runtime.step import StepMiddleware
from limpet.runtime.timetable import Timetable
from limpet.runtime.worker import Worker
from limpet.stores.base import Store
from limpet.stores.open import open_store

T = TypeVar("T")


class Limpet(Declaring, Asking):
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
        self._step_middleware: list[StepMiddleware] = []
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
            types=lambda: self._settings.file.types,
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

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The declared tasks by name, those of included modules too."""
        self._includes.load()
        return MappingProxyType(self._registry.tasks)

    # -- running work

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
        """Write what tasks, schedules, queues, types and [alerts] declare into the store, for other programs.

        Workers do it when they start. A schedule that live workers declare otherwise is replaced once a worker with
        this code lives. Answers how many tasks changed.
        """
        self._includes.load()
        registry = self._registry
        file = self._settings.file
        changed = await registry.publish(self.store, file.retention.of_queues())
        if file.alerts is not None:
            file.alerts.receivers(os.environ)  # an address that is none is refused before the first job
        await publish_rules(self.store, file.alerts)
        changed += await self._client.types.publish()
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
            step_middleware=tuple(self._step_middleware),
            classifiers=self._classifiers,
            schedules=tuple(self._registry.schedules.values()),
            code_version=self._code_version or os.environ.get("LIMPET_CODE_VERSION", ""),
            companions=(self._look_for_alerts,),
        )

    async def _look_for_alerts(self, store: Store) -> None:
        """What each worker does beside its jobs."""
        await AlertRunner(store, self._settings.file.alerts, self.namespace).live()

    if not TYPE_CHECKING:
        __getattr__ = answers("a Limpet app", APP)

    def __repr__(self) -> str:
        return f"<Limpet {len(self._registry.tasks)} tasks>"


def _flows(store: Store) -> Flows:
    return Flows(store, "client")


def _names_of(queues: Iterable[str | Queue]) -> tuple[str, ...]:
    """The names of queues that an app or a worker lists; text is no list."""
    if not isinstance(queues, str) and isinstance(queues, Iterable):
        queues = [queue_name(queue, what="queues") for queue in queues]
    return checked_names(cast(Iterable[str], queues), what="queues")


async def _explain(store: Store, id: bytes) -> Explanation:
    return await Operator(store, "client").explain(id_text(id))


def _loop_of_running_job() -> asyncio.AbstractEventLoop | None:
    attempt = current.get()
    return None if attempt is None else attempt.loop
