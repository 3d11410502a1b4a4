"""Enqueues inside the caller's own transaction, on the caller's own connection to the store's file."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from holdfast.core.errors import WrongContext
from holdfast.stores.sqlite.connection import LAYOUT, layout_of
from holdfast.stores.sqlite.library import library, own
from holdfast.stores.sqlite.writer import translate

T = TypeVar("T")

# What a connection that only this module still holds is counted as: our list, a local, getrefcount itself.
ABANDONED: Final = 3


LET_GO_S: Final = 0.1


class Plain:
    """The caller's connection without its row factory: our rows are tuples, whatever its rows are."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def execute(self, sql: str, args: Sequence[Any] = ()) -> sqlite3.Cursor:
        cursor = self._conn.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, args)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> sqlite3.Cursor:
        return self._conn.executemany(sql, rows)


class Guests:
    """The callers' connections that hold a write transaction on the store's file, by thread."""

    def __init__(self, path: str | None, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._by_thread: dict[int, sqlite3.Connection] = {}
        self._watcher: threading.Thread | None = None

    def run(self, conn: object, work: Callable[[Plain], T]) -> T:
        """Do `work` in the caller's transaction: all of it or none, and never a commit."""
        mine = own(conn)
        self._check(mine)
        plain = Plain(mine)
        self._by_thread[threading.get_ident()] = mine
        try:
            plain.execute("SAVEPOINT holdfast")
            try:
                answer = work(plain)
            except BaseException:
                plain.execute("ROLLBACK TO holdfast")
                plain.execute("RELEASE holdfast")
                raise
            plain.execute("RELEASE holdfast")
        except library.Error as error:
            translated = translate(error, "enqueue")
            if translated is error:
                raise
            raise translated from error
        finally:
            del mine, conn
            self._watch()
        return answer

    def _watch(self) -> None:
        """Let go of connections whose transaction has ended, or that their owner has dropped in the middle of one.

        Ours would else be the reference that keeps such a transaction, and the file's write lock, alive.
        """
        if self._watcher is None or not self._watcher.is_alive():
            self._watcher = threading.Thread(target=self._let_go, name="holdfast-guests", daemon=True)
            self._watcher.start()

    def _let_go(self) -> None:
        while self._by_thread:
            time.sleep(LET_GO_S)
            for thread in list(self._by_thread):
                self._holds(thread)

    def _holds(self, thread: int) -> bool:
        """Whether this thread's guest still has its transaction open; one that has not is forgotten."""
        conn = self._by_thread.get(thread)
        if conn is None:
            return False
        try:
            if conn.in_transaction and sys.getrefcount(conn) > ABANDONED:
                return True
        except library.Error:  # closed
            pass
        self._by_thread.pop(thread, None)
        return False

    def refuse(self, verb: str) -> None:
        """A verb awaited by a thread that holds the write lock itself would wait for itself."""
        if not self._by_thread or not self._holds(threading.get_ident()):
            return
        raise WrongContext(
            f"{verb}: your own transaction on {self._path} is still open, and this would wait for it",
            fix="commit or roll back first",
        )

    def _check(self, conn: sqlite3.Connection) -> None:
        row = Plain(conn).execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
        if self._path is None or not row[0] or not os.path.samefile(row[0], self._path):
            raise WrongContext(
                f"the connection is to {row[0] or 'memory'!r}, the store is in {self._path or 'memory'!r}",
                fix="pass a connection to the store's own file",
            )
        if not conn.in_transaction:
            raise WrongContext(
                "the connection is in no transaction, so there is nothing to commit the job with",
                fix='write your rows first, or conn.execute("BEGIN IMMEDIATE")',
            )
        if layout_of(conn, self._prefix) != LAYOUT:
            raise WrongContext("the store's tables are not in this file yet", fix="run `holdfast migrate` once")
