"""Remembers what code declared about its tasks, in the store, where operators without that code can read it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from holdfast.core.gate import GateRule
from holdfast.core.job import PRIORITIES, Policy
from holdfast.core.view import Control
from holdfast.stores.base import Store

KIND: Final = "task"


class PublishedTask(Struct, frozen=True):
    """One task as its code declares it. Unknown fields are ignored: a newer release may say more."""

    name: str
    queue: str = "default"
    priority: int = PRIORITIES["normal"]
    executor: str = "async"
    policy: Policy = Policy()
    group: str | None = None
    limits: tuple[GateRule, ...] = ()  # those with a constant key
    keys: tuple[str, ...] = ()  # templates of the others
    breaker: GateRule | None = None
    needs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    unique: bool = False
    schema: dict[str, Any] = {}

    def rules(self) -> tuple[GateRule, ...]:
        """The gates that this task declares by itself, whatever its arguments are."""
        return self.limits if self.breaker is None else (*self.limits, self.breaker)

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self))


async def published_tasks(store: Store) -> list[PublishedTask]:
    """Every published task that can be read, by name."""
    tasks: list[PublishedTask] = []
    for control in await store.controls(KIND):
        try:
            tasks.append(msgspec.json.decode(control.value, type=PublishedTask))
        except msgspec.MsgspecError:
            continue  # another release's record; its own doctor reads it
    return tasks
