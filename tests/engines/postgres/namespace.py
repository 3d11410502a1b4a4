"""A namespace of a test's own on a server: any number of stores on it, and what they leave is audited."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import psycopg

from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.postgres.wire import in_schema
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.postgres.audit import faults
from tests.engines.postgres.ways import PATIENT, until_waiting
from tests.servers.postgres import PostgresServer

_numbers = count(1)

_UNTENDED = """
DO $$ DECLARE v_table regclass; BEGIN
  FOR v_table IN
    SELECT oid FROM pg_class
    WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'lp.job'::regclass)
  LOOP EXECUTE 'ALTER TABLE ' || v_table || ' SET (autovacuum_enabled = off)'; END LOOP;
END $$
"""


class Namespace:
    """A harness, so that benches and walks can be had on it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.name = f"ns{next(_numbers)}"
        self.clock = Clock()
        self._opened: list[Store] = []

    # -- stores

    async def open(self) -> PostgresStore:
        store = open_store(f"{self.server.url}?{PATIENT}", self.name)
        assert isinstance(store, PostgresStore)
        self._opened.append(store)
        await store.open()
        return store

    async def reopen(self, store: Store) -> PostgresStore:
        return await self.open()

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self._opened.clear()

    async def bench(self) -> Bench:
        """Another process."""
        return Bench(await self.open(), self.clock, self)

    async def untended_bench(self) -> Bench:
        """The same, where pages are counted: nobody cleans up or takes statistics between two counts."""
        bench = await self.bench()
        self.ask(_UNTENDED)
        return bench

    # -- beside the stores

    @property
    def schema(self) -> str:
        return f"limpet_{self.name}"

    def sql(self, text: str) -> bytes:
        return in_schema(text, self.schema).encode()

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """One statement, committed by itself; `lp.` means this namespace."""
        return self.server.ask(self.sql(query).decode(), *values)

    def one(self, query: str, *values: object) -> Any:
        """The only value that a statement answers."""
        ((value,),) = self.ask(query, *values)
        return value

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        """A connection of a caller's own."""
        return psycopg.connect(self.server.url, autocommit=autocommit)

    async def until_waiting(self, number: int) -> None:
        """So many wait for locks."""
        await until_waiting(self.server, number)

    def faults(self, now_ms: int | None = None) -> list[str]:
        return faults(self.server, self.schema, self.clock.now_ms if now_ms is None else now_ms)

    def drop(self) -> None:
        self.server.ask(f'DROP SCHEMA IF EXISTS "{self.schema}" CASCADE')


@contextlib.asynccontextmanager
async def fresh_namespace(server: PostgresServer) -> AsyncIterator[Namespace]:
    """A namespace that is sound when the test is over, and then goes."""
    namespace = Namespace(server)
    try:
        yield namespace
        found = namespace.faults()
        assert not found, found
    finally:
        await namespace.close()
        namespace.drop()
