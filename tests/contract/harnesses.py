"""One harness per engine, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.harness import Harness


class SqliteFile:
    """SQLite in a file; every handle has its own connections, as another process would."""

    name = "sqlite-file"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[Store] = []
        self._number = 0

    async def open(self) -> Store:
        self._number += 1
        return await self._handle()

    async def reopen(self, store: Store) -> Store:
        return await self._handle()

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()

    async def _handle(self) -> Store:
        # The contract is about meaning; sync=normal spares it thousands of disk flushes.
        store = SqliteStore(str(self._folder / f"{self._number}.db"), sync="normal")
        await store.open()
        self._opened.append(store)
        return store


class SqliteMemory:
    """SQLite in memory: one handle, which everybody in the process shares."""

    name = "sqlite-memory"

    def __init__(self, folder: Path) -> None:
        self._opened: list[Store] = []

    async def open(self) -> Store:
        store = SqliteStore(None)
        await store.open()
        self._opened.append(store)
        return store

    async def reopen(self, store: Store) -> Store:
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()


HARNESSES: dict[str, Callable[[Path], Harness]] = {"sqlite-file": SqliteFile, "sqlite-memory": SqliteMemory}
SHARED = ("sqlite-file",)  # those that other processes can open
