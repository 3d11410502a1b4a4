"""Notices jobs that came without a wake-up: those committed in a caller's own transaction."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from limpet.core.errors import StoreError
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.link import Link
from limpet.stores.sqlite.statements import statements

LOOK_S: Final = 0.05  # between two looks, while the log is written
# After a write to the log: the commit is seen later than that, once the disk has it.
LATER_S: Final = (LOOK_S, 0.2, 1.0)
IN_MODIFY: Final = 0x2


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


class LogWatch:
    """Calls `look` when some process writes the write-ahead log, while a worker of one loop sleeps."""

    def __init__(self, descriptor: int, look: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._loop.add_reader(descriptor, self._written)

    def _written(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._drain()
        self._look()
        self._look_later(0)

    def _look_later(self, number: int) -> None:
        self._later = self._loop.call_later(LATER_S[number], self._look_again, number)

    def _look_again(self, number: int) -> None:
        number = 0 if self._drain() else number + 1
        self._look()
        if number < len(LATER_S):
            self._look_later(number)
        else:
            self._loop.add_reader(self._descriptor, self._written)

    def _drain(self) -> bool:
        """Take what the kernel has told; whether it was anything."""
        with suppress(BlockingIOError):
            return bool(os.read(self._descriptor, 4096))
        return False

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        if self._later is not None:
            self._later.cancel()


@contextmanager
def log_watch(path: str, look: Callable[[], None]) -> Iterator[bool]:
    """Have `look` called on every write to the log of this file; False where the kernel does not tell."""
    descriptor = _watched(f"{os.path.realpath(path)}-wal")
    if descriptor is None:
        yield False
        return
    try:
        watch = LogWatch(descriptor, look)
        try:
            yield True
        finally:
            watch.close()
    finally:
        os.close(descriptor)


def _watched(path: str) -> int | None:
    """A descriptor that can be read when the file is written; None without inotify, or when there are no more."""
    if sys.platform != "linux":
        return None
    library = _libc()
    descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if library.inotify_add_watch(descriptor, os.fsencode(path), IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
