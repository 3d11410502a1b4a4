"""Publishes what tasks declare, and remembers what other programs published, so that jobs can be asked for by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from limpet.client.connection import Connection
from limpet.core.jobs.retention import DECLARED, States, control_of, said_in
from limpet.core.tasks.declaration import KIND, Declaration, read_declaration
from limpet.core.tasks.task import TaskSpec
from limpet.stores.base import Store

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
