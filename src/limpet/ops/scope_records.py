"""Decides which stored records and lines of the logs are about a queue, for callers that may see some queues only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from limpet.core.alerts.book import read_book
from limpet.core.alerts.rule import read_rules
from limpet.core.endings import review
from limpet.core.jobs import retention
from limpet.core.jobs.view import Control, Entry
from limpet.core.operations.operation import read_operation
from limpet.core.redaction import published as redaction
from limpet.core.schedules import schedule
from limpet.core.schedules.history import kind_of
from limpet.core.schedules.schedule import Schedule, read_schedule
from limpet.core.tasks import declaration
from limpet.core.tasks.declaration import Declaration, read_declaration
from limpet.ops import weights
from limpet.ops.declared import declared_tasks
from limpet.stores.base import MARK, Store

USUAL: Final = Declaration("").queue  # of tasks that no code has declared
TICKS: Final = kind_of("")  # how the kinds of the records begin that keep the ticks of schedules


def queue_of_task(control: Control) -> str | None:
    """The queue of a published task."""
    declared = read_declaration(control)
    return None if declared is None else declared.queue


async def tasks_of_others(store: Store, queues: frozenset[str]) -> frozenset[str]:
    """Tasks that code declares for other queues, by all their names: workers of these queues may know them, too."""
    others = [task for task in await declared_tasks(store) if task.queue not in queues]
    return frozenset(name for task in others for name in (task.name, *task.aliases))


def _review(control: Control) -> str | None:
    found = review.read_review(control)
    return None if found is None else found.queue


# kind → the queue that a record of it is about; None: it is about none, or about several
QUEUE_OF: Final[Mapping[str, Callable[[Control], str | None]]] = {
    declaration.KIND: queue_of_task,
    review.KIND: _review,
    retention.SET: lambda control: control.name,
    retention.DECLARED: lambda control: control.name,
    weights.KIND: lambda control: queue_in(control.name),
}


# Kinds whose records are for every queue. What is hidden of jobs is hidden of these queues' jobs, too.
FOR_ALL: Final = frozenset({redaction.KIND, schedule.REVISION.kind})


def alerts_of(controls: list[Control], queues: frozenset[str]) -> list[Control]:
    """The book with the alerts of these queues alone, and the rules without what they say of others."""
    book = replace(read_book(controls).book, notices=(), silences=(), samples=(), leader="")
    book = replace(book, alerts=tuple(alert for alert in book.alerts if alert.queue in queues))
    rules = read_rules(controls)
    mine = [
        replace(
            rule,
            each={name: number for name, number in rule.each.items() if rule.subject == "queue" and name in queues},
            ignore=tuple(name for name in rule.ignore if rule.subject == "queue" and name in queues),
        )
        for rule in rules.rules
    ]
    return [book.control(), replace(rules, rules=tuple(mine), webhooks=()).control()]


def queue_in(key: str) -> str | None:
    """The queue that a key such as "queue:mail" names."""
    kind, _, name = key.partition(":")
    return name if kind == "queue" and name else None


def acts_within(control: Control, queues: frozenset[str]) -> bool:
    """Whether a stored operation acts within these queues alone."""
    found = read_operation(control)
    return found is not None and found.queues is not None and queues.issuperset(found.queues)


def schedule_of(kind: str, name: str) -> str | None:
    """The schedule that a record of this kind and name belongs to; None: to none."""
    if kind == schedule.KIND:
        return name
    if kind.startswith(TICKS):
        return kind.removeprefix(TICKS)
    source = schedule.source_of("")
    return name.removeprefix(source) if kind == MARK and name.startswith(source) else None


async def queues_of_schedules(store: Store) -> dict[str, str]:
    """The queue of each schedule's jobs: its own option, or what code says of the task."""
    declared = {control.name: queue_of_task(control) for control in await store.controls(declaration.KIND)}
    found = {control.name: read_schedule(control) for control in await store.controls(schedule.KIND)}
    return {name: queue_of(each, declared) for name, each in found.items() if isinstance(each, Schedule)}


def queue_of(found: Schedule, declared: Mapping[str, str | None]) -> str:
    """The queue of one schedule's jobs."""
    return str(found.options.get("queue") or declared.get(found.task) or USUAL)


def facts_of(entry: Entry) -> dict[str, Any]:
    """What a line of a log knows besides."""
    try:
        return msgspec.json.decode(entry.data, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def queue_of_entry(entry: Entry) -> str | None:
    """The queue that a line says it is about; None: it does not say."""
    facts = facts_of(entry)
    queue = facts.get("queue")
    return queue if isinstance(queue, str) else queue_in(str(facts.get("key", facts.get("gate", ""))))
