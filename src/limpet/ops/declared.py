"""Reads what code declared about its tasks from the store, where operators without that code can see it."""

from __future__ import annotations

from limpet.core.budget import base_of
from limpet.core.declaration import KIND, Declaration, read_declaration
from limpet.core.gate import GateRule
from limpet.stores.base import Store


async def declared_tasks(store: Store) -> list[Declaration]:
    """Every published task that this release can read, by name."""
    found = [read_declaration(control) for control in await store.controls(KIND)]
    return [one for one in found if one is not None]


async def declared_rule(store: Store, gate: str) -> GateRule | None:
    """What code says about a gate: whatever a job's arguments are, or when they make this key of a template."""
    tasks = await declared_tasks(store)
    for task in tasks:
        for rule in task.constant_rules():
            if rule.key == gate:
                return rule
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
