"""Notices that the store's file was removed or replaced while it is open: it lives on without a name."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from typing import Final

from limpet.core.errors import StoreUnreachable

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

    def refuse_removed(self) -> None:
        """Raise when this process had the file open and it is gone: an empty one is made by a person, not by chance."""
        if self._opened is not None and self.place() is None:
            raise StoreUnreachable(
                f"the file {self.path} was removed while this process used it",
                verb="reopen",  # what was written into it may come back with it
                fix="put it back; or run `limpet doctor`, which makes an empty one, and this process goes on with that",
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

    def opened(self, place: Place) -> Logs:
        """A connection was opened to the file at `place`. Says so, once, when that is another file than before."""
        logs = self.log_places()
        with self._lock:
            before, self._opened, self._logs = self._opened, place, logs
        if before not in (None, place):
            logger.error(
                "the file %s was replaced while this process used it: it goes on with the new one, and what it was "
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
