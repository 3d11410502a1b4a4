"""Remembers the store of this process: opened on first use, and opened again after a fork."""

from __future__ import annotations

import os
from collections.abc import Callable

from limpet.core.errors import WrongContext
from limpet.stores.base import Store


class Connection:
    """One store per process, whichever thread asks first. What a parent opened is never touched by its child."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        # A parent's store stays in here after a fork: if it were collected, files and locks would be closed
        # that the parent still uses.
        self._stores: dict[int, Store] = {}

    @property
    def is_open(self) -> bool:
        """True when this process has used the store and not closed it since."""
        return os.getpid() in self._stores

    @property
    def store(self) -> Store:
        """The store of this process. It connects with its first verb."""
        pid = os.getpid()
        store = self._stores.get(pid)
        if store is None:
            self._refuse_inherited_memory()
            # Two threads may both make one, and setdefault lets one win: nothing is connected before a verb is asked.
            store = self._stores.setdefault(pid, self._open_store())
        return store

    async def close(self) -> None:
        """Let go of the store; a later use opens it again."""
        store = self._stores.pop(os.getpid(), None)
        if store is not None:
            await store.close()

    def _refuse_inherited_memory(self) -> None:
        if any(not store.features.shared for store in self._stores.values()):
            raise WrongContext(
                "this process is a fork, and a store in memory stays with the process that opened it",
                fix="use a file (sqlite:///jobs.db), or enqueue before the fork",
            )
