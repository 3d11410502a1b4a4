"""Remembers what jobs really did, in a file of its own: the witness against which the store is checked.

An effect is made idempotent the way a mail provider does it, by the job's id: a second run of a job finds the
effect done and leaves it alone. Nothing in the file forbids a second row, so a duplicate would be seen.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS effect (job TEXT NOT NULL, token INTEGER NOT NULL, task TEXT, at_ms INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS effect_job ON effect (job);
CREATE TABLE IF NOT EXISTS run (job TEXT NOT NULL, token INTEGER NOT NULL, at_ms INTEGER NOT NULL);
"""
ONCE: Final = """
INSERT INTO effect (job, token, task, at_ms)
SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (SELECT 1 FROM effect WHERE job = ?1)
"""
BUSY_S: Final = 20.0


class Ledger:
    """One process's hand on the ledger. A job's run and its effect are written in one transaction."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            raise FileNotFoundError(path)
        self._lock = threading.Lock()
        # Never the store's file, so a second SQLite library in this process does no harm.
        self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        if create:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(SCHEMA)
        # Survives kill -9 of every process, which is what the demo does; a power cut is not part of it.
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def record(self, job: str, token: int, task: str) -> bool:
        """Note this run, and its effect unless an earlier run had it; True when this run did it."""
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("INSERT INTO run VALUES (?, ?, ?)", (job, token, now_ms))
            done = self._connection.execute(ONCE, (job, token, task, now_ms)).rowcount == 1
            self._connection.execute("COMMIT")
        return done

    def effects(self) -> list[str]:
        """The job of every effect, as often as it happened."""
        return [job for (job,) in self._connection.execute("SELECT job FROM effect")]

    def runs(self) -> list[tuple[str, int]]:
        """(job, fencing token) of every run that came as far as its effect."""
        return self._connection.execute("SELECT job, token FROM run").fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
