"""Does verbs inside the caller's own transaction, on the caller's own connection to the store's file."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from limpet.core.errors import StoreUnreachable, WrongContext
from limpet.stores.callers import caller_of, join, joined
from limpet.stores.sqlite.connection import LAYOUT, layout_of
from limpet.stores.sqlite.library import library, refuse_other
from limpet.stores.sqlite.statements import statements
from limpet.stores.sqlite.writer import translate

T = TypeVar("T")
Stamp = tuple[Any, ...]

# What a connection that only this module still holds is counted as: the guest's, a local, getrefcount itself.
ABANDONED: Final = 3

LET_GO_S: Final = 0.1


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError as error:
        raise StoreUnreachable(f"the file {other} was removed", verb="enqueue", fix="put it back") from error


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


class Guest:
    """A caller's connection while it holds a transaction that a verb has joined."""

    __slots__ = ("_conn", "host")

    def __init__(self, host: Guests, conn: sqlite3.Connection) -> None:
        self.host = host
        self._conn: sqlite3.Connection | None = conn

    def is_on(self, conn: sqlite3.Connection) -> bool:
        return self._conn is conn

    @property
    def is_open(self) -> bool:
        """False once its transaction has ended, or its owner has dropped the connection in the middle of it.

        Ours would else be the reference that keeps such a transaction, and the file's write lock, alive.
        """
        conn = self._conn
        if conn is None:
            return False
        try:
            if conn.in_transaction and sys.getrefcount(conn) > ABANDONED:
                return True
        except library.Error:  # closed
            pass
        self._conn = None
        return False


class Guests:
    """The callers' connections that hold a transaction on the store's file."""

    def __init__(self, path: str | None, prefix: str) -> None:
        self._path = path
        self._prefix = prefix
        self._guests: set[Guest] = set()
        self._watcher: threading.Thread | None = None

    async def run(self, verb: str, conn: object, work: Callable[[Plain], T], stamp: Callable[[], Stamp]) -> T:
        """Do `work` in the caller's transaction: all of it or none, and never a commit. Nothing here ever waits.

        `stamp` is that of the file which has the store's path now.
        """
        caller = caller_of(conn)
        caller.expect("sqlite")
        refuse_other(caller.library)  # before an engine of SQLAlchemy would open the file with it
        await caller.refuse_outside_transaction()
        raw: sqlite3.Connection = caller.raw
        plain = Plain(raw)
        try:
            self._check(raw)
            self._welcome(raw)
            if not raw.in_transaction:
                # A savepoint would be the whole transaction, and its release a commit. The caller's driver begins
                # before a statement that writes, so it gets one.
                plain.execute(statements(self._prefix)["guest_enter"])
            plain.execute("SAVEPOINT limpet")
            try:
                answer = work(plain)
                self._refuse_replaced(plain, stamp)
            except BaseException:
                plain.execute("ROLLBACK TO limpet")
                plain.execute("RELEASE limpet")
                raise
            plain.execute("RELEASE limpet")
        except library.Error as error:
            translated = translate(error, verb)
            if translated is error:
                raise
            raise translated from error
        finally:
            del caller, conn, raw, plain  # the caller now holds the last reference to the connection
        return answer

    def _welcome(self, conn: sqlite3.Connection) -> None:
        for known in joined():
            if isinstance(known, Guest) and known.is_on(conn):
                return
        guest = Guest(self, conn)
        join(guest)
        self._guests.add(guest)
        watcher = self._watcher
        if watcher is None or not watcher.is_alive():  # a fork takes no threads along, and may take a lock that is held
            self._watcher = threading.Thread(target=self._watch, name="limpet-guests", daemon=True)
            self._watcher.start()

    def _watch(self) -> None:
        """Let go of connections soon after their transactions have ended, while there are any."""
        while self._guests:
            time.sleep(LET_GO_S)
            self._guests.difference_update([guest for guest in list(self._guests) if not guest.is_open])
            if not self._guests:
                self._watcher = None  # and a look again: who came before this saw a watcher and started none

    def refuse(self, verb: str) -> None:
        """A verb awaited by code that holds the write lock itself would wait for itself."""
        for known in joined():
            if isinstance(known, Guest) and known.host is self:
                raise WrongContext(
                    f"{verb}: your own transaction on {self._path} is still open, and this would wait for it",
                    fix="commit or roll back first",
                )

    def _refuse_replaced(self, plain: Plain, stamp: Callable[[], Stamp]) -> None:
        """After the first write: the caller has the write lock of its file, so nothing changes there meanwhile."""
        if plain.execute(statements(self._prefix)["stamp"]).fetchone() != stamp():
            raise WrongContext(
                f"the connection is to a file that was {self._path} and has been replaced: a commit there is lost",
                fix="open a new connection",
            )

    def _check(self, conn: sqlite3.Connection) -> None:
        row = Plain(conn).execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()
        if self._path is None or not row[0] or not _is_same(row[0], self._path):
            raise WrongContext(
                f"the connection is to {row[0] or 'memory'!r}, the store is in {self._path or 'memory'!r}",
                fix="pass a connection to the store's own file",
            )
        found = layout_of(Plain(conn), self._prefix)
        if found.number < LAYOUT:
            raise WrongContext("the store's tables are not in this file yet", fix="run `limpet migrate` once")
        found.refuse_if_later("enqueue")
