"""Holds one connection for one user, and lets go of every connection before a fork.

SQLite keeps what it knows of a file's locks in memory that a fork copies. Even a fresh connection of the child
would then believe in locks it does not have, and either side could delete the log under the other's commits. So
nothing may be open while a process forks: afterwards parent and child connect anew.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakSet

from limpet.core.errors import StoreUnreachable
from limpet.stores.sqlite.file import TRIES, Logs, Place, StoreFile
from limpet.stores.sqlite.library import library

FORK_S: Final = 5.0  # how long a fork waits for a commit that is under way
LOOK_S: Final = 0.05  # a connection that was looked after so recently is used without another look


class Link:
    """A connection that is opened when it is used and may be dropped between two uses.

    With a `file` it is always one to the file that has the name now: one to a file that was replaced is dropped.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], lock_path: str | None = None, file: StoreFile | None = None
    ) -> None:
        self._connect = connect
        self._lock_path = lock_path
        self._file = file
        self._conn: sqlite3.Connection | None = None
        self._place: Place | None = None  # where the file lay that the connection has open
        self._logs: Logs = (None, None)
        self._looked_s = 0.0
        self.on_other_file: Callable[[], None] = lambda: None  # called before the first use of another file
        self.lock_file = -1  # open while the connection is, when there is a path for it
        self.busy = threading.Lock()
        self.torn = False  # in a child: the parent was using it when it forked

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone; one that turns out broken is dropped."""
        with self.busy:
            if self._conn is not None and time.monotonic() - self._looked_s > LOOK_S:
                self._look()
            if self._conn is None:
                self._conn = self._open()
                if self._lock_path is not None:
                    self.lock_file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                yield self._conn
            except BaseException:
                if self._conn is not None and not _healthy(self._conn):
                    self.drop()
                raise

    @property
    def is_current(self) -> bool:
        """Whether the file and the log that the connection has open still have their names. By who uses it."""
        if self._file is None:
            return True
        current = self._file.place() == self._place and self._file.log_places() == self._logs
        self._looked_s = time.monotonic() if current else 0.0
        return current

    def _look(self) -> None:
        """Drop a connection to what has lost its name."""
        file = self._file
        if file is None or self.is_current:
            return
        file.refuse_removed()  # and keep it: a file that was moved away may be moved back
        self.drop()

    def _open(self) -> sqlite3.Connection:
        file = self._file
        if file is None:
            return self._connect()
        for _ in range(TRIES):
            file.refuse_removed()
            file.part()
            before = file.place()
            conn = self._connect()
            if before is not None and before == file.place():
                self._opened(file, before)
                return conn
            conn.close()  # it was made just now, or replaced meanwhile: nobody knows which of them this is
        raise StoreUnreachable(
            f"the file {file.path} is replaced over and over", verb="open", fix="end the program that replaces it"
        )

    def _opened(self, file: StoreFile, place: Place) -> None:
        other = self._place not in (None, place)
        self._place, self._logs, self._looked_s = place, file.opened(place), time.monotonic()
        if other:
            self.on_other_file()

    def drop(self) -> None:
        """Close the connection. The caller has made it busy."""
        if self._conn is not None:
            with suppress(library.Error):
                self._conn.close()
            self._conn = None
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1

    def close(self) -> None:
        """Close the connection when nobody uses it."""
        with self.busy:
            self.drop()


def _healthy(conn: sqlite3.Connection) -> bool:
    try:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1")
    except library.Error:
        return False
    return True


class Forks:
    """Every link of this process to a file. A fork is an event of the whole process, and so is this."""

    def __init__(self) -> None:
        self._links: WeakSet[Link] = WeakSet()
        self._stopped: list[Link] = []
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def watch(self, link: Link) -> Link:
        """Drop this link's connection before every fork."""
        self._links.add(link)
        return link

    def _before(self) -> None:
        for link in list(self._links):
            if link.busy.acquire(timeout=FORK_S):
                link.drop()
                self._stopped.append(link)

    def _in_parent(self) -> None:
        while self._stopped:
            self._stopped.pop().busy.release()

    def _in_child(self) -> None:
        for link in list(self._links):
            link.torn = link not in self._stopped
        self._stopped.clear()
        self._links.clear()


forks: Final = Forks()
