"""Decides which hooks are published, who runs them, and what deserves attention there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from limpet.core.endings.hook import KIND, QUEUE, Hook, read_hook
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.view import Counts, Finding
from limpet.core.records.hook import HookRecord
from limpet.core.tasks.naming import did_you_mean, nearest
from limpet.ops.names import UnknownName
from limpet.stores.base import Store


async def hooks(store: Store) -> tuple[HookRecord, ...]:
    """Every published hook, by name."""
    return records(await _published(store), await store.count(), await store.sessions())


async def hooks_of(store: Store, names: Collection[str], queue: str | None) -> tuple[str, ...]:
    """The names of the hooks that hear of the ends of a task, by its names and the queue that its code declares."""
    return tuple(
        hook.name
        for hook in await _published(store)
        if queue != QUEUE
        and (not hook.tasks or not set(names).isdisjoint(hook.tasks))
        and (not hook.queues or queue is None or queue in hook.queues)
    )


async def remove(store: Store, name: str) -> None:
    """No end makes a job of this hook any more; jobs that it has stay."""
    known = {hook.name: hook for hook in await _published(store)}
    if name not in known:
        raise UnknownName(f"there is no hook {name!r:.80}", fix=did_you_mean(name, known))
    await store.put_control(replace(known[name], states=()).control())


async def _published(store: Store) -> list[Hook]:
    found = [read_hook(control.value) for control in await store.controls(KIND)]
    return [hook for hook in found if hook is not None and hook.states]


def records(published: Iterable[Hook], counts: Counts, sessions: Iterable[SessionView]) -> tuple[HookRecord, ...]:
    """These hooks with the jobs and the live workers that they have."""
    live = list(sessions)
    return tuple(
        HookRecord.of(
            hook,
            {state: n for (queue, task, state), n in counts.now.items() if (queue, task) == (QUEUE, hook.name)},
            sum(session.serves.can(QUEUE, hook.name, ()) for session in live),
        )
        for hook in published
    )


def findings(found: Iterable[HookRecord], known: Collection[str]) -> Iterator[Finding]:
    """Hooks that no live worker runs, and those for tasks that are not among the known ones: a slip of the keys."""
    found = list(found)
    for hook in found:
        for task in hook.tasks:
            if task not in known:
                text = f"the hook {hook.name} is for the task {task!r}, which no code declares and no job has"
                close = nearest(task, known)
                fix = f"did you mean {close!r}? Correct tasks= of the hook" if close else "correct tasks= of the hook"
                yield Finding("warning", "hook_of_unknown_task", text, fix)
    idle = [hook for hook in found if not hook.workers]
    for hook in idle:
        waits = f", and jobs of it that wait: {hook.waiting}" if hook.waiting else ""
        text = f"no live worker runs the hook {hook.name}{waits}"
        fix = f"start one that has it, without --no-hooks; or, if it is gone: limpet hooks remove {hook.name}"
        yield Finding("warning", "unserved_hook", text, fix)
    if found and not idle:
        yield Finding("ok", "hooks", f"live workers run all {len(found)} hooks")
