"""Harnesses of engines that join callers' own transactions, one for each way in which callers reach the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from limpet_contract.harness import Transactional, Visitor
from tests.contract.harnesses import PostgresSchema, SqliteFile
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.stores import visitors


class VisitedSqliteFile(SqliteFile):
    """SQLite in a file that callers have open too."""

    def __init__(self, way: str, folder: Path) -> None:
        super().__init__(folder)
        self._way = way

    async def visit(self, store: Store) -> Visitor:
        assert isinstance(store, SqliteStore)
        assert store.path is not None
        return await visitors.SQLITE[self._way](store.path)


class VisitedPostgres(PostgresSchema):
    """A schema in a database where callers have tables of their own."""

    def __init__(self, way: str, folder: Path) -> None:
        super().__init__(folder)
        self._way = way

    async def visit(self, store: Store) -> Visitor:
        server = shared(POSTGRES)
        server.ask("DROP TABLE IF EXISTS visited")
        return await visitors.POSTGRES[self._way](server.url)


# What drivers and SQLAlchemy do with a statement is tested for all of them in tests/stores.
WAYS = ("psycopg", "psycopg-async", "asyncpg", "alchemy-session", "alchemy-async-session-asyncpg")
VISITED: dict[str, Callable[[Path], Transactional]] = {
    **{f"sqlite-file-{way}": partial(VisitedSqliteFile, way) for way in visitors.SQLITE},
    **{f"postgres-{way}": partial(VisitedPostgres, way) for way in WAYS},
}
