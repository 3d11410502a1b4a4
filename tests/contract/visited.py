"""Harnesses of engines that join callers' own transactions, one for each way in which callers reach the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.stores.base import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.harness import Transactional, Visitor
from tests.contract.harnesses import SqliteFile
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


VISITED: dict[str, Callable[[Path], Transactional]] = {
    f"sqlite-file-{way}": partial(VisitedSqliteFile, way) for way in visitors.SQLITE
}
