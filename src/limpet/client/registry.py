"""Remembers what code declares, publishes it, and reads what other programs published: jobs are asked for by name."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from limpet.client.hooks import Hooks
from limpet.client.options import ScheduleOptions
from limpet.client.producer import Connection
from limpet.client.task import AsyncTask, SyncTask, Task
from limpet.core.endings.hook import QUEUE as HOOKS
from limpet.core.errors import InvalidTask
from limpet.core.jobs.retention import DECLARED, States, control_of, merged, said_in
from limpet.core.redaction.rule import Rule
from limpet.core.schedules.run import check_fits
from limpet.core.schedules.schedule import Schedule
from limpet.core.schedules.when import When
from limpet.core.tasks.agreement import check_agreement
from limpet.core.tasks.declaration import KIND, Declaration, read_declaration
from limpet.core.tasks.queue import Queue, same_queue
from limpet.core.tasks.task import PLAIN, TaskOptions, TaskSpec
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.client.client import Client

TaskT = TypeVar("TaskT", bound=Task[..., Any])

# A worker that starts with a changed declaration reaches by-name producers within this time.
_FRESH_S: Final = 10.0


async def publish(store: Store, specs: Iterable[TaskSpec]) -> int:
    """Write the declarations that are new or changed; how many were."""
    known = {control.name: control.value for control in await store.controls(KIND)}
    written = 0
    for spec in specs:
        control = Declaration.of(spec).control()
        if known.get(spec.name) != control.value:
            await store.put_control(control)
            written += 1
    return written


async def publish_retention(store: Store, said: Mapping[str, States], served: Collection[str]) -> None:
    """Write how long the jobs of queues stay, for the workers of all programs: each of them prunes for all.

    Of a queue that is served here and of which nothing is said any more, that is written too.
    """
    known = said_in(await store.controls(DECLARED))
    for queue in sorted({*said, *(known.keys() & served)}):
        if known.get(queue, {}) != said.get(queue, {}):
            await store.put_control(control_of(DECLARED, queue, said.get(queue, {})))


class Registry:
    """What the code of an app declares: tasks, queues and schedules, each name once.

    `specs` has each task also under its former names.
    """

    def __init__(
        self,
        client: Client,
        specs: dict[str, TaskSpec],
        max_payload: int,
        max_result: int,
        redact: tuple[Rule, ...] = (),
    ) -> None:
        self._client = client
        self._redact = redact  # what no face may show of any job
        self._max_payload, self._max_result = max_payload, max_result  # bytes, where a task says nothing
        self.specs = specs
        self.tasks: dict[str, Task[..., Any]] = {}
        self.queues: dict[str, Queue] = {}
        self.schedules: dict[str, Schedule] = {}
        self.hooks = Hooks(client, specs)

    def declare(self, fn: Callable[..., Any], options: TaskOptions) -> Task[..., Any]:
        """What `@app.task(...)` does."""
        sized: TaskOptions = {"max_payload_bytes": self._max_payload, "max_result_bytes": self._max_result}
        sized.update(options)
        queue = options.get("queue")
        if isinstance(queue, Queue):
            self.declare_queue(queue)
        spec = TaskSpec.declare(fn, self.queues, self._redact, **sized)
        for name in (spec.name, *spec.aliases):
            self._refuse_taken(name, spec)
        if spec.queue == HOOKS:
            raise InvalidTask(f"the queue {HOOKS!r} is for hooks alone", fix="give the task another queue=")
        check_agreement(spec, self.specs.values())
        self._client.check_queue(spec.queue)
        kind = AsyncTask if inspect.iscoroutinefunction(inspect.unwrap(fn)) else SyncTask
        self.specs[spec.name] = spec
        self.specs.update((twin.name, twin) for twin in spec.under_aliases())
        task = self.tasks[spec.name] = kind(self._client, spec, PLAIN)
        return task

    def _refuse_taken(self, name: str, spec: TaskSpec) -> None:
        known = self.specs.get(name)
        if known is None:
            return
        if name == spec.name == known.name and known.alias_of is None:
            raise InvalidTask(f"the app has a task {name!r} already", fix="give one of them another name=")
        other = known.alias_of or known.name
        if name == spec.name:
            raise InvalidTask(f"{name!r} is an alias of the task {other!r}", fix="give this task another name=")
        what = f"an alias of the task {other!r}" if known.alias_of else "another task"
        raise InvalidTask(
            f"aliases= of {spec.name!r} holds {name!r}, which is {what}", fix="a name belongs to one task: leave it out"
        )

    def declare_queue(self, queue: Queue) -> None:
        """A queue that the app lists, or that a task names: declared twice it must be the same."""
        self._client.check_queue(queue.name)
        known = self.queues.get(queue.name)
        early = next((spec.name for spec in self.specs.values() if spec.queue == queue.name), None)
        if known is None and early is not None:
            raise InvalidTask(
                f"task {early!r} was put into queue {queue.name!r} before that queue was declared",
                fix="declare the queue first: pass the Queue to that task, or call app.ai_queues() above it",
            )
        self.queues[queue.name] = same_queue(known, queue)

    def schedule(
        self, when: When, args: Mapping[str, Any], name: str | None, options: ScheduleOptions
    ) -> Callable[[TaskT], TaskT]:
        """What `@app.schedule(...)` does."""

        def declare(task: TaskT) -> TaskT:
            if not isinstance(task, Task) or self.tasks.get(task.name) is None:
                raise InvalidTask(
                    f"@app.schedule stands above {task!r:.60}, which is not a task of this app",
                    fix="put it above @app.task",
                )
            spec = task.spec
            raw, _ = spec.signature.encode(spec.signature.bind_named(args), max_bytes=spec.max_payload_bytes)
            schedule = Schedule.declare(when, task=spec.name, name=name or spec.scope, args=raw, options=options)
            check_fits(schedule, spec)
            if "queue" in options:
                self._client.check_queue(options["queue"])
            if schedule.name in self.schedules:
                raise InvalidTask(
                    f"the app has a schedule {schedule.name!r} already", fix="give one of them another name="
                )
            self.schedules[schedule.name] = schedule
            return task

        return declare

    async def publish(self, store: Store, retention: Mapping[str, States]) -> int:
        """Write what tasks and queues declare, and what is configured of these; how many tasks changed."""
        await self._client.rules.publish(store)  # first: what is to be hidden is hidden before there is a job
        changed = await publish(store, self.specs.values())
        await self.hooks.publish(store)
        kept = {name: dict(queue.kept) for name, queue in self.queues.items() if queue.kept}
        served = {*self.queues, *(spec.queue for spec in self.specs.values())}
        await publish_retention(store, merged(kept, retention), served)
        return changed


class Published:
    """The published tasks, read again when they may have changed."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._specs: dict[str, TaskSpec] = {}
        self._read_at: float | None = None

    async def spec(self, name: str, max_payload_bytes: int) -> TaskSpec:
        """The task of that name; one that was not published takes any JSON object and waits for its worker."""
        if self._read_at is None or self._clock() - self._read_at > _FRESH_S:
            found = [read_declaration(control) for control in await self._connection.store.controls(KIND)]
            self._specs = {one.name: one.spec() for one in found if one is not None}
            self._read_at = self._clock()
        spec = self._specs.get(name)
        if spec is None:
            spec = Declaration(name, max_payload_bytes=max_payload_bytes).spec()
        return spec
