"""Lists tasks: what code has published, what live workers know and say of the last minute, and where the jobs are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from limpet.core.alerts.conditions import Rate
from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.minute import Minute
from limpet.core.jobs.state import State
from limpet.core.records.task import MinuteRecord, TaskDetail, TaskRecord
from limpet.core.tasks.declaration import Declaration
from limpet.core.tasks.naming import did_you_mean
from limpet.ops.declared import declared_tasks
from limpet.ops.hooks import hooks_of
from limpet.ops.names import UnknownName
from limpet.stores.base import Store


class _Said(Struct, frozen=True):
    """What is read here of what a worker says about itself."""

    last_minute: Minute | None = None


async def tasks(store: Store) -> list[TaskRecord]:
    """Every task, by name: published by code, known to a live worker, or with jobs."""
    declared = {task.name: task for task in await declared_tasks(store)}
    sessions = await store.sessions()
    minutes = _minutes(sessions)
    today = {name: task.alias_of or name for name, task in declared.items()}
    states: dict[str, Counter[State]] = {}
    for (_, name, state), count in (await store.count()).now.items():
        if count:
            states.setdefault(today.get(name, name), Counter())[state] += count
    said = {name for minute in minutes for name in minute.tasks}
    known = {name for session in sessions for name in session.serves.tasks or ()}
    names = {today.get(name, name) for name in {*declared, *said, *known}} | states.keys()
    found = []
    for name in sorted(names):
        task = declared.get(name)
        all_names = (name, *(task.aliases if task is not None else ()))
        minute = MinuteRecord.of(minutes, all_names)
        found.append(TaskRecord.of(name, task, states.get(name, {}), _able(sessions, all_names), minute))
    return found


async def task(store: Store, name: str) -> TaskDetail:
    """One task, by its name or a former one, with all that its code declares."""
    lines = {line.task: line for line in await tasks(store)}
    declared = {task.name: task for task in await declared_tasks(store)}
    today = _today(declared, name)
    if today not in lines:
        raise UnknownName(f"no task is called {name!r}", fix=did_you_mean(name, {*lines, *declared}))
    line = lines[today]
    return TaskDetail.whole(line, declared.get(today), await hooks_of(store, (today, *line.aliases), line.queue))


async def last_minute(store: Store) -> MinuteRecord:
    """All tasks together."""
    return MinuteRecord.of(_minutes(await store.sessions()))


def rates(sessions: Iterable[SessionView], queues: Mapping[str, str]) -> list[Rate]:
    """How the attempts of each task ended lately, for alerts: by what live workers say of the last minute.

    `queues` has the queue of tasks whose jobs are in one queue.
    """
    found = {name: MinuteRecord.of(minutes, [name]) for minutes in [_minutes(sessions)] for name in _named(minutes)}
    return [
        Rate(
            name,
            queues.get(name),
            sum(minute.ended.get(outcome, 0) for outcome in ("succeeded", "retried", "dead")),
            minute.failed_share,
            None if minute.run_p95_s is None else minute.run_p95_s * 1000,
        )
        for name, minute in sorted(found.items())
    ]


def _named(minutes: Iterable[Minute]) -> set[str]:
    return {name for minute in minutes for name in minute.tasks}


def _today(declared: dict[str, Declaration], name: str) -> str:
    task = declared.get(name)
    return name if task is None else task.alias_of or name


def _able(sessions: Iterable[SessionView], names: Sequence[str]) -> int:
    """Live workers and agents that take jobs of one of these names."""
    return sum(
        session.serves.tasks is None or any(name in session.serves.tasks for name in names) for session in sessions
    )


def _minutes(sessions: Iterable[SessionView]) -> list[Minute]:
    found = []
    for session in sessions:
        try:
            said = msgspec.json.decode(session.info, type=_Said).last_minute
        except msgspec.MsgspecError:
            continue  # an agent says what it likes, a later release perhaps something else
        if said is not None:
            found.append(said)
    return found
