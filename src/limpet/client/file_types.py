"""Publishes the types that a configuration file declares, before their first job and when a worker starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from limpet.client.producer import Connection
from limpet.core.errors import InvalidTask
from limpet.core.tasks.agent_type import TypeSource
from limpet.core.tasks.declaration import KIND, Declaration, read_declaration
from limpet.stores.base import Store

Tables = Mapping[str, Mapping[str, Any]]


class FileTypes:
    """The types of one program's file; each store is told of them once."""

    def __init__(self, connection: Connection, tables: Callable[[], Tables]) -> None:
        self._connection = connection
        self._tables = tables
        self._told: Store | None = None

    async def publish(self) -> int:
        """Write what is new or changed, unless this store was told; how many types were written."""
        store = self._connection.store
        if self._told is store:
            return 0
        tables = self._tables()
        written = await publish_types(store, tables) if tables else 0
        self._told = store
        return written


async def publish_types(store: Store, tables: Tables) -> int:
    """Write the types of a file; what operators have changed at run time stays in force."""
    while True:
        known = {control.name: control for control in await store.controls(KIND)}
        written, contended = 0, False
        for name, table in tables.items():
            control = known.get(name)
            there = None if control is None else read_declaration(control)
            if there is not None and there.type is None:
                raise InvalidTask(
                    f"types.{name} is declared in the file, and code declares a task of that name",
                    fix="rename one of them",
                )
            source = TypeSource(dict(table), {} if there is None or there.type is None else there.type.set)
            new = Declaration.of_type(name, source).control()
            if control is None or control.value != new.value:
                version = 0 if control is None else control.version
                contended |= await store.put_control(new, expect=version) is None
                written += 1
        if not contended:
            return written
