"""Runs in the background what operations wait for a process: those just started, and those whose runner fell silent."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from limpet.core.errors import LimpetError
from limpet.ops.operation_shelf import Kept
from limpet.ops.operations import Operations
from limpet.stores.base import Store

EVERY_S: Final = 2.0  # how often a process looks for operations that wait
AT_ONCE: Final = 8  # operations that one process runs beside each other: a throttled one mostly waits

_log = logging.getLogger("limpet.operations")


async def run_operations(store: Store, stop: asyncio.Event, *, every_s: float = EVERY_S) -> None:
    """Run operations of this store until `stop` is set; then let go of them: another process takes them at once.

    A store that is away is asked again. The actors are the people who started them.
    """
    operations = Operations(store, "limpet")
    running: dict[str, asyncio.Task[None]] = {}
    try:
        while not stop.is_set():
            running = {id: task for id, task in running.items() if not task.done()}
            try:
                for kept in await operations.waiting():
                    id = kept.operation.id
                    if id not in running and len(running) < AT_ONCE:
                        running[id] = asyncio.create_task(_run(operations, kept, stop), name=f"limpet-operation-{id}")
            except LimpetError as error:
                _log.warning("operations cannot be looked for: %s", error.message)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), every_s)
    finally:
        stop.set()
        if running:
            await asyncio.wait(running.values())


async def _run(operations: Operations, kept: Kept, stop: asyncio.Event) -> None:
    try:
        await operations.run_here(kept, stop)
    except LimpetError as error:
        _log.warning("operation %s stopped, and will be tried again: %s", kept.operation.id, error.message)


class OperationRunner:
    """The same as a part with one life: `start` begins it, `stop` ends it and waits.

    >>> runner = OperationRunner(store)          # doctest: +SKIP
    >>> runner.start(); ...; await runner.stop() # doctest: +SKIP
    """

    def __init__(self, store: Store, *, every_s: float = EVERY_S) -> None:
        self._store = store
        self._every_s = every_s
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; nothing when it has begun."""
        if self._task is None:
            self._stop = asyncio.Event()
            work = run_operations(self._store, self._stop, every_s=self._every_s)
            self._task = asyncio.create_task(work, name="limpet-operations")

    async def stop(self) -> None:
        """End after the jobs that it is at, and return when ended; twice, or before a start, is fine."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stop.set()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
