"""Notices jobs that came without a wake-up: those committed in a caller's own transaction."""

from __future__ import annotations

import sqlite3
from typing import Any

from limpet.core.errors import StoreError
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.link import Link
from limpet.stores.sqlite.statements import statements


class Sentry:
    """Watches how many guests' transactions were committed; a look costs a few microseconds and no lock."""

    def __init__(self, link: Link, prefix: str) -> None:
        self.link = link
        self._query = statements(prefix)["guests"]
        self._stamp = statements(prefix)["stamp"]
        self._version: tuple[sqlite3.Connection, int] | None = None
        self._guests = 0
        self.seen: dict[str, int] = {}  # by session: how many its last claim or look has seen

    def changed(self, who: str) -> bool:
        """True when a guest committed since `who` last asked; False the first time."""
        try:
            with self.link.use() as conn:
                self._look(conn)
        except (library.Error, StoreError):
            return False  # an outage: the next verb says so
        before = self.seen.get(who, self._guests)
        self.seen[who] = self._guests
        return before != self._guests

    def stamp(self) -> tuple[Any, ...]:
        """What tells the file at the path from another that once was there."""
        with self.link.use() as conn:
            stamp: tuple[Any, ...] = conn.execute(self._stamp).fetchone()
        return stamp

    def _look(self, conn: sqlite3.Connection) -> None:
        # data_version changes with every commit of another connection: most looks end here. It counts for one
        # connection only, so a new one is always looked at.
        version = (conn, int(conn.execute("PRAGMA data_version").fetchone()[0]))
        if version != self._version:
            self._version = version
            self._guests = int(conn.execute(self._query).fetchone()[0])

    def forget(self, who: str) -> None:
        """Drop what is kept for a session that left."""
        self.seen.pop(who, None)
