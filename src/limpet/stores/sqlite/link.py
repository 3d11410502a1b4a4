"""Holds one connection for one user, always to the file that has the store's name, and none while a process forks.

A file that was removed or replaced while it is open lives on without a name: what is written there is lost.

SQLite keeps what it knows of a file's locks in memory that a fork copies. Even a fresh connection of the child
would then believe in locks it does not have, and either side could delete the log under the other's commits. So
nothing may be open while a process forks: afterwards parent and child connect again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from weakref import WeakSet

from limpet.core.errors import StoreTimeout, StoreUnreachable
from limpet.stores.sqlite.library import library

FORK_S: Final = 5.0  # how long a fork waits for a commit that is under way
PART_S: Final = 10.0  # how long a new connection waits for old ones in use: longer than a commit waits for the file
LOOK_S: Final = 0.05  # a connection that was looked after so recently is used without another look
TRIES: Final = 5  # a file that is replaced more often than this while it is opened: some program does so in a loop

Place = tuple[int, int]  # device and inode
Logs = tuple[Place | None, Place | None]

logger = logging.getLogger("limpet.stores.sqlite")


class Replaced(Exception):
    """What was just committed is in a file that is no longer the store's: it must be asked of the new one."""


class StoreFile:
    """The file at one path, as the connections of one process found it. Safe from every thread.

    Its places are told by device and inode. While a connection has a file open no other file can get the same ones.
    It is never opened here: to close any descriptor of it drops every lock that SQLite holds on it in this process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._opened: Place | None = None  # what this process opened last
        self._logs: Logs = (None, None)  # what that had beside it

    def place(self) -> Place | None:
        """Where the file lies now; None when there is none."""
        return _place(self.path)

    def log_places(self) -> Logs:
        """Where the write-ahead log and its index lie now. Both stay where they are while a connection is open."""
        return _place(f"{self.path}-wal"), _place(f"{self.path}-shm")

    def has_other_log(self, logs: Logs) -> bool:
        """Whether a log took the name of one of these."""
        return any(new not in (None, old) for new, old in zip(self.log_places(), logs, strict=True))

    def refuse_removed(self) -> None:
        """Raise when this process had the file open and it is gone: an empty one is made by a person, not by chance."""
        if self._opened is not None and self.place() is None:
            raise StoreUnreachable(
                f"the file {self.path} was removed while this process used it",
                verb="reopen",  # what was written into it may come back with it
                fix="put it back; or run `limpet doctor`, which makes an empty one that this process then uses",
            )

    def part(self) -> None:
        """Take the names from the logs of a file that was replaced: SQLite would write them into the one that came.

        Under the lock of the writers. While the old log has the name no other can come, so none is taken by mistake.
        """
        if self._opened is None or self.place() == self._opened:
            return
        log, index = self._logs
        with open(f"{self.path}-lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if log is not None and _place(f"{self.path}-wal") == log:
                aside = f"{self.path}-wal-{log[1]}"
                os.rename(f"{self.path}-wal", aside)
                logger.error("the log of the file that was replaced is put aside as %s", aside)
            if index is not None and _place(f"{self.path}-shm") == index:
                os.unlink(f"{self.path}-shm")  # SQLite makes it from a log

    def refuse_old_log(self, place: Place) -> None:
        """Raise when this process still has a log of the file open that lost its name, by a connection not of ours.

        All connections of a process to one file share one index: a new one would read the new log by the old index.
        """
        if self._opened != place or self.log_places() == self._logs:
            return
        gone = {f"{os.path.realpath(self.path)}{end} (deleted)" for end in ("-wal", "-shm")}
        if not gone.isdisjoint(_open_files()):
            raise StoreUnreachable(
                f"the log of {self.path} was removed, and a connection of your own in this process has it open",
                verb="reopen",
                fix="close that connection",
            )

    def opened(self, place: Place) -> Logs:
        """A connection was opened to the file at `place`. Says so, once, when that is another file than before."""
        logs = self.log_places()
        with self._lock:
            before, self._opened, self._logs = self._opened, place, logs
        if before not in (None, place):
            logger.error(
                "the file %s was replaced while this process used it: it continues with the new one, and what it was "
                "running for the old one counts no more (jobs of the old file are only there)",
                self.path,
            )
        return logs


def _place(path: str) -> Place | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _open_files() -> Iterator[str]:
    """What this process has open, as Linux names it; nothing elsewhere."""
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return
    for number in numbers:
        with suppress(OSError):  # closed meanwhile
            yield os.readlink(f"/proc/self/fd/{number}")


class Link:
    """A connection that is opened when it is used and may be dropped between two uses.

    With a `file` it is always one to the file that has the name now: one to a file that was replaced is dropped.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        lock_path: str | None = None,
        file: StoreFile | None = None,
        on_other_file: Callable[[], None] = lambda: None,
    ) -> None:
        self._connect = connect
        self._lock_path = lock_path
        self._file = file
        self._conn: sqlite3.Connection | None = None
        self._place: Place | None = None  # where the file lay that the connection has open
        self._logs: Logs = (None, None)
        self._looked_s = 0.0
        self._on_other_file = on_other_file  # called before the first use of another file
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
            if before is not None:
                forks.part(self, before)
                file.refuse_old_log(before)
            conn = self._connect()
            if before is not None and before == file.place():
                self._opened(file, before)
                return conn
            conn.close()  # it was made just now, or replaced meanwhile: it is unknown which file this is
        raise StoreUnreachable(
            f"the file {file.path} is replaced over and over", verb="open", fix="end the program that replaces it"
        )

    def _opened(self, file: StoreFile, place: Place) -> None:
        other = self._place not in (None, place)
        self._place, self._logs, self._looked_s = place, file.opened(place), time.monotonic()
        if other:
            self._on_other_file()

    def part(self, place: Place) -> None:
        """Drop the connection once its user is done, when it is to the file at `place` and has a log without a name."""
        until_s = time.monotonic() + PART_S
        while self._conn is not None and self._place == place and not self.is_current:
            if self.busy.acquire(timeout=0.01):
                try:
                    self._look()
                finally:
                    self.busy.release()
            elif time.monotonic() > until_s:
                raise StoreTimeout(
                    "a long read has the old log of the file open", verb="reopen", fix="wait for its end"
                )

    def drop(self) -> None:
        """Close the connection. The caller has made it busy."""
        if self._conn is not None:
            with suppress(library.Error):
                if self._file is not None and self._file.has_other_log(self._logs):
                    # The last close copies the log into the file: the old one would spoil what the new one has done.
                    self._conn.interrupt()
                self._conn.close()
            self._conn = None
        if self.lock_file >= 0:
            os.close(self.lock_file)
            self.lock_file = -1

    def close(self) -> None:
        """Close the connection when it is unused."""
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

    def part(self, link: Link, place: Place) -> None:
        """Have every other connection to the file at `place` let go of a log that lost its name."""
        for other in list(self._links):
            if other is not link:
                other.part(place)

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
