"""Declares what an app is made of: tasks, schedules, hooks, resources, middleware, queues of models."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from limpet.client.client import Client
from limpet.client.hooks import HookOptions
from limpet.client.injection import OpenResources
from limpet.client.new_job import EnqueueMiddleware, checked, refuse_misfit
from limpet.client.options import ScheduleOptions
from limpet.client.registry import Registry
from limpet.client.task import AsyncTask, SyncTask, Task
from limpet.core.jobs.state import FINISHED, State
from limpet.core.schedules.when import When
from limpet.core.tasks.ai_queues import AIQueueOptions, AIQueues
from limpet.core.tasks.task import TaskOptions
from limpet.runtime.settings import Middleware, Resource
from limpet.runtime.step import StepMiddleware

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
TaskT = TypeVar("TaskT", bound=Task[..., Any])


class Declaring:
    """The decorators of an app. `Limpet` makes the parts that they fill."""

    _registry: Registry
    _client: Client
    _opened: OpenResources
    _resources: list[Resource]
    _hooks: list[Resource]
    _middleware: list[Middleware]
    _step_middleware: list[StepMiddleware]

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

    def step_middleware(self, fn: StepMiddleware) -> StepMiddleware:
        """Wrap the function of every durable step in `async def fn(step, run)`, which awaits `run()`.

        It is called for each try of a step that runs, not for one that is remembered; `step.job` is the running job.

        >>> app = Limpet("sqlite://")
        >>> @app.step_middleware
        ... async def tell(step: RunningStep, run: Callable[[], Awaitable[object]]) -> object:
        ...     print(f"{step.job.task} runs step {step.name}")
        ...     return await run()
        """
        refuse_misfit(fn, 2, takes="a RunningStep and run", shape="async def fn(step: RunningStep, run)")
        self._step_middleware.append(fn)
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


async def _finish(made: object) -> None:
    if inspect.isawaitable(made):
        await made
