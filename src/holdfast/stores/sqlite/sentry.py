"""Notices jobs that came without a wake-up: those committed in a caller's own transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from holdfast.stores.sqlite.library import library
from holdfast.stores.sqlite.statements import statements


class Sentry:
    """Watches how many guests' transactions were committed; a look costs a few microseconds and no lock."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], prefix: str) -> None:
        self._connect = connect
        self._query = statements(prefix)["guests"]
        self._conn: sqlite3.Connection | None = None
        self._lock = threading.Lock()
        self._version = -1
        self._guests = 0
        self._seen: dict[str, int] = {}

    def changed(self, who: str) -> bool:
        """True when a guest committed since `who` last asked; False the first time."""
        with self._lock:
            try:
                self._look()
            except library.Error:
                return False  # an outage: the next verb says so
            before = self._seen.get(who, self._guests)
            self._seen[who] = self._guests
            return before != self._guests

    def _look(self) -> None:
        if self._conn is None:
            self._conn = self._connect()
        # data_version changes with every commit of another connection: most looks end here.
        version = int(self._conn.execute("PRAGMA data_version").fetchone()[0])
        if version != self._version:
            self._version = version
            self._guests = int(self._conn.execute(self._query).fetchone()[0])

    def forget(self, who: str) -> None:
        """Drop what is kept for a session that left."""
        self._seen.pop(who, None)

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None
