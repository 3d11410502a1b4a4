"""Remembers the store of this process: opened on first use, opened anew after a fork."""

from __future__ import annotations

import os
from collections.abc import Callable

from holdfast.core.errors import WrongContext
from holdfast.stores.base import Store


class Connection:
    """One store per process. What a parent opened is never touched by its child, not even to close it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._mine: tuple[int, Store] | None = None
        self._inherited: list[Store] = []

    @property
    def is_open(self) -> bool:
        """True when this process has used the store and not closed it since."""
        return self._mine is not None and self._mine[0] == os.getpid()

    @property
    def store(self) -> Store:
        """The store of this process. It connects with its first verb."""
        mine = self._mine
        if mine is not None and mine[0] == os.getpid():
            return mine[1]
        if mine is not None:
            self._leave_to_parent(mine[1])
        store = self._open_store()
        self._mine = (os.getpid(), store)
        return store

    async def close(self) -> None:
        """Let go of the store; a later use opens it again."""
        mine, self._mine = self._mine, None
        if mine is None:
            return
        if mine[0] != os.getpid():
            self._leave_to_parent(mine[1])
            return
        await mine[1].close()

    def _leave_to_parent(self, store: Store) -> None:
        if not store.features.shared:
            raise WrongContext(
                "this process is a fork, and a store in memory stays with the process that opened it",
                fix="use a file (sqlite:///jobs.db), or enqueue before the fork",
            )
        # Kept, not dropped: a collected connection would close files and locks that the parent still uses.
        self._inherited.append(store)
