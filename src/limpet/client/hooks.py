"""Declares hooks: functions that are called, as jobs of their own, with the records of jobs that have ended."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

from msgspec.structs import replace

from limpet.core.endings.hook import KIND, QUEUE, Ending, Hook, states_said
from limpet.core.errors import InvalidOption, InvalidTask
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.job import JobRecord
from limpet.core.tasks.declare import RetryOption, TaskOptions, default_name, injected_of, is_async
from limpet.core.tasks.naming import checked_names, did_you_mean
from limpet.core.tasks.queue import Queue, queue_name
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import Duration
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])


class HookOptions(TypedDict, total=False):
    """What `@app.on_dead(...)` and `@app.on_finished(...)` take."""

    name: str | None
    tasks: Iterable[str]
    queues: Iterable[str | Queue]
    retry: RetryOption
    timeout: Duration | None


OPTIONS: Final = frozenset(HookOptions.__annotations__)


class Hooks:
    """The hooks of an app, by the names of their tasks."""

    def __init__(self, client: Client, specs: dict[str, TaskSpec]) -> None:
        self._client = client
        self._specs = specs
        self.declared: dict[str, Hook] = {}

    def declare(self, fn: Callable[..., Any], states: Iterable[State | str], options: HookOptions) -> None:
        """What `@app.on_dead` and `@app.on_finished` do."""
        for option in options:
            if option not in OPTIONS:
                raise InvalidOption(f"a hook has no option {option!r}", fix=did_you_mean(option, OPTIONS))
        name = options.get("name") or f"hook:{default_name(fn)}"
        asked: TaskOptions = {"name": name, "queue": QUEUE}
        if "retry" in options:
            asked["retry"] = options["retry"]
        if "timeout" in options:
            asked["timeout"] = options["timeout"]
        spec = TaskSpec.declare(_handler(self._client, fn), **asked)
        if spec.name in self._specs:
            raise InvalidTask(f"the app has a task {spec.name!r} already", fix="give one of them another name=")
        hook = Hook(
            spec.pattern,
            spec.policy,
            states_said(states),
            checked_names(options.get("tasks", ()), what="tasks"),
            checked_names([queue_name(queue) for queue in _listed(options.get("queues", ()))], what="queues"),
        )
        self._specs[spec.name] = spec
        self.declared[spec.name] = hook

    async def publish(self, store: Store) -> None:
        """Write the hooks that are new or changed: from then on the ends that they are for make their jobs."""
        known = {control.name: control.value for control in await store.controls(KIND)}
        for hook in self.declared.values():
            control = replace(hook, tasks=self._all_names(hook.tasks)).control()
            if known.get(control.name) != control.value:
                await store.put_control(control)

    def _all_names(self, tasks: Iterable[str]) -> tuple[str, ...]:
        """Tasks with the other names that they have: jobs may be stored under each, whichever the hook was given."""
        names = list(tasks)
        for task in tasks:
            spec = self._specs.get(task)
            if spec is not None:
                names += [spec.alias_of or spec.name, *spec.aliases]
        return tuple(dict.fromkeys(names))


def _listed(queues: Any) -> Iterable[Any]:
    return queues if isinstance(queues, Iterable) and not isinstance(queues, str) else [queues]


def _handler(client: Client, fn: Callable[..., Any]) -> Callable[..., Any]:
    """What the task of a hook runs: it reads the job, and calls the hook with its record."""
    injected = injected_of(fn)
    parameters = inspect.signature(fn).parameters
    try:
        inspect.signature(fn).bind(None, **injected)
    except TypeError as error:
        raise InvalidTask(
            f"the hook {getattr(fn, '__qualname__', fn)!r} cannot be called with one job: {error}",
            fix="give it one parameter: def alert(job)",
        ) from error

    async def record(ending: Ending) -> JobRecord:
        (view,) = await client.store.get([id_bytes(ending.job)])
        return JobRecord.of(await client.shown(view_of(ending, view)))

    async def call(ending: Ending, **resources: Any) -> None:
        await fn(await record(ending), **resources)

    def call_in_thread(ending: Ending, **resources: Any) -> None:
        fn(client.bridge.run(record(ending)), **resources)

    handler: Any = call if is_async(fn) else call_in_thread
    ending = inspect.Parameter("ending", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Ending)
    resources = [parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in injected]
    handler.__signature__ = inspect.Signature([ending, *resources])
    handler.__annotations__ = {"ending": Ending, "return": None}
    handler.__module__, handler.__doc__ = fn.__module__, fn.__doc__
    handler.__name__, handler.__qualname__ = fn.__name__, fn.__qualname__
    return cast(Callable[..., Any], handler)


def view_of(ending: Ending, view: JobView | None) -> JobView:
    """The job as it ended, whatever became of it since. Of one that is gone only what its end told is known."""
    if view is None:
        lane = Lane(ending.queue, ending.task, ending.priority, ending.tenant)
        policy = Policy(attempts=max(1, ending.attempt))
        view = JobView(id_bytes(ending.job), ending.state, lane, policy, b"", 0, 0, ending.enqueued_at_ms, ending.at_ms)
    if (view.state, view.finished_at_ms) != (ending.state, ending.at_ms):
        view = replace(
            view,
            state=ending.state,
            attempt=ending.attempt,
            finished_at_ms=ending.at_ms,
            reason=ending.reason,
            error_type=ending.error_type,
            cause="",
            cancel_requested=False,
        )
    return view
