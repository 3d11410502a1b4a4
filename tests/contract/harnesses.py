"""One harness per engine, by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import ClassVar

from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.sqlite import SqliteStore
from limpet_contract.harness import Harness
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared as shared_postgres
from tests.servers.redis import shared


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


_NAMESPACES = count(1)

# The contract is about meaning: on a busy machine a verb may take longer than callers wait for it elsewhere.
PATIENT = "timeout=60"


class RedisNamespace:
    """A namespace on the server that this process shares; every handle has its own connections."""

    name = "redis"

    def __init__(self, folder: Path) -> None:
        self._namespaces: dict[int, str] = {}  # by handle
        self._opened: list[Store] = []

    async def open(self) -> Store:
        return await self._handle(f"n{next(_NAMESPACES)}")

    async def reopen(self, store: Store) -> Store:
        return await self._handle(self._namespaces[id(store)])

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()
        self._namespaces.clear()

    async def _handle(self, namespace: str) -> Store:
        store = open_store(f"{shared(REDIS).url}?{PATIENT}", namespace)
        self._opened.append(store)
        self._namespaces[id(store)] = namespace
        await store.open()
        return store


# What makes a schema as it was when it was new.
EMPTY = """
DO $$ DECLARE v_table regclass; BEGIN
  SET LOCAL lock_timeout = '60s';
  FOR v_table IN
    SELECT oid FROM pg_class WHERE relnamespace = '"SCHEMA"'::regnamespace AND relkind = 'r'
      AND relname NOT IN ('migration', 'home')
  LOOP EXECUTE 'DELETE FROM ' || v_table; END LOOP;
  INSERT INTO "SCHEMA".floor DEFAULT VALUES;
  PERFORM setval('"SCHEMA".tokens', 0);
  INSERT INTO "SCHEMA".sweep DEFAULT VALUES;
  INSERT INTO "SCHEMA".pruned (what) VALUES ('4'), ('5'), ('6'), ('gone'), ('gate');
END $$
"""


class PostgresSchema:
    """A schema of its own on the server that this process shares; every handle has its own connections.

    To make a schema takes far longer than most tests, so those that are done are emptied and used again.
    """

    name = "postgres"
    _spare: ClassVar[list[str]] = []

    def __init__(self, folder: Path) -> None:
        self._namespaces: dict[int, str] = {}  # by handle
        self._opened: list[Store] = []

    async def open(self) -> Store:
        return await self._handle(self._spare.pop() if self._spare else f"n{next(_NAMESPACES)}")

    async def reopen(self, store: Store) -> Store:
        return await self._handle(self._namespaces[id(store)])

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        for namespace in set(self._namespaces.values()):
            shared_postgres(POSTGRES).ask(EMPTY.replace("SCHEMA", f"limpet_{namespace}"))
            self._spare.append(namespace)
        self._opened.clear()
        self._namespaces.clear()

    async def _handle(self, namespace: str) -> Store:
        store = open_store(f"{shared_postgres(POSTGRES).url}?{PATIENT}", namespace)
        self._opened.append(store)
        self._namespaces[id(store)] = namespace
        await store.open()
        return store


HARNESSES: dict[str, Callable[[Path], Harness]] = {
    "sqlite-file": SqliteFile,
    "sqlite-memory": SqliteMemory,
    "redis": RedisNamespace,
    "postgres": PostgresSchema,
}
SHARED = ("sqlite-file", "redis", "postgres")  # those that other processes can open
HANDING = ("sqlite-file", "sqlite-memory", "redis")  # those that hand off (`Features.hands_off`)
