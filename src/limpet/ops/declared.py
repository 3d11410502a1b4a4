"""Reads what code declared about its tasks from the store, where operators without that code can see it."""

from __future__ import annotations

from collections.abc import Iterable

from limpet.core.gate import Gate, GateRule
from limpet.core.limits.budget import base_of
from limpet.core.tasks.declaration import KIND, Declaration, read_declaration
from limpet.stores.base import Store


async def declared_tasks(store: Store) -> list[Declaration]:
    """Every published task that this release can read, by name."""
    found = [read_declaration(control) for control in await store.controls(KIND)]
    return [one for one in found if one is not None]


async def live_tasks(store: Store) -> list[Declaration]:
    """Those of them that a live worker serves, each once, by its name today."""
    serves = [session.serves for session in await store.sessions()]
    if not serves:
        return []
    return [
        task
        for task in await declared_tasks(store)
        if task.alias_of is None and any(each.tasks is None or task.name in each.tasks for each in serves)
    ]


async def task_names(store: Store, name: str) -> tuple[str, ...]:
    """All names of the task that has this one: the first is the scope of its gates."""
    for task in await declared_tasks(store):
        if task.name == name and task.aliases:
            return (*task.aliases, task.alias_of or task.name)
    return (name,)


async def meant_gate(store: Store, gate: str) -> str:
    """The gate that is meant by a key: all names of a task share one, and one breaker that is called after it."""
    kind, _, name = gate.partition(":")
    if kind not in ("task", "breaker"):
        return gate
    scope = (await task_names(store, name))[0]
    if kind == "breaker" and not any(
        task.name == name and task.breaker is not None and task.breaker.key == f"breaker:{scope}"
        for task in await declared_tasks(store)
    ):
        return gate
    return f"{kind}:{scope}"


async def declared_gates(store: Store) -> list[Gate]:
    """The limits, breakers and ceilings of queues that live workers declare, by key, as before their first job.

    Keys that a job's arguments make are not known before one comes.
    """
    rules = {rule.key: rule for task in await live_tasks(store) for rule in task.constant_rules()}
    return [Gate(rules[key]) for key in sorted(rules)]


async def with_declared(store: Store, stored: Iterable[Gate]) -> list[Gate]:
    """These gates and gates that are only declared, by kind and key."""
    found = {gate.key: gate for gate in await declared_gates(store)} | {gate.key: gate for gate in stored}
    return [found[key] for key in sorted(found)]


async def declared_queues(store: Store) -> set[str]:
    """The queues that live workers serve, and the queues of their tasks."""
    names = {queue for session in await store.sessions() for queue in session.serves.queues or ()}
    return names | {task.queue for task in await live_tasks(store)}


async def declared_rule(store: Store, gate: str) -> GateRule | None:
    """What code says about a gate: whatever a job's arguments are, or when they make this key of a template."""
    tasks = await declared_tasks(store)
    for task in tasks:
        for rule in task.constant_rules():
            if rule.key == gate:
                return rule
    for task in tasks:
        by_key = task.breaker_rule(gate)
        if by_key is not None:
            return by_key
    key = gate.removeprefix("limit:")
    keys = {key, base_of(key)[2]} if gate.startswith("limit:") else set[str]()
    made = (
        rule
        for task in tasks
        for ceiling in task.spec().ceilings
        for key in keys
        if ceiling.template.made(key)
        for rule in ceiling.rules(key)
    )
    return next((rule for rule in made if rule.key == gate), None)
