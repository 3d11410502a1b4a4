"""Runs transactions on one connection in one thread: what is asked while a commit is under way shares the next one."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.core.errors import (
    HoldfastError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
)
from holdfast.stores.sqlite.library import library

GROUP = 64  # operations that may share one commit: bounds how long the first of them waits for its answer

Operation = Callable[[sqlite3.Connection], Any]
Intercept = Callable[[str, str], None]


class Request:
    """One operation and the loop that waits for its answer."""

    __slots__ = ("error", "future", "loop", "operation", "value", "verb")

    def __init__(self, verb: str, operation: Operation, loop: asyncio.AbstractEventLoop) -> None:
        self.verb = verb
        self.operation = operation
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class Writer:
    """The one thread that writes. `lock_path` names a file lock that queues writers of several processes fairly."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], lock_path: str | None, *, write: bool = True) -> None:
        self._connect = connect
        self._lock_path = lock_path
        self._write = write
        self._requests: deque[Request] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.changes = 0  # rows changed by this connection so far
        self.after_commit: Callable[[], None] = lambda: None
        self.after_rollback: Callable[[], None] = lambda: None
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._thread = threading.Thread(target=self._run, name="holdfast-sqlite", daemon=True)
        self._thread.start()

    async def submit(self, verb: str, operation: Operation) -> Any:
        """Run `operation` inside a transaction and answer what it returned, after the commit."""
        request = Request(verb, operation, asyncio.get_running_loop())
        with self._wake:
            if self._closing:
                raise StoreUnreachable("the store was closed", verb=verb, fix="open it again")
            self._requests.append(request)
            self._wake.notify()
        return await request.future

    def close(self) -> None:
        """Finish what was asked, then stop. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread

    def _run(self) -> None:
        conn: sqlite3.Connection | None = None
        lock = -1
        while True:
            with self._wake:
                while not self._requests and not self._closing:
                    self._wake.wait()
                if not self._requests:
                    break
                group = [self._requests.popleft() for _ in range(min(GROUP, len(self._requests)))]
            group = [request for request in group if not request.future.done()]
            try:
                if conn is None:
                    conn = self._connect()
                    if self._lock_path is not None and lock < 0:
                        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._commit(conn, lock, group)
            except BaseException as error:
                for request in group:
                    request.error = translate(error, request.verb)
                if conn is not None and not _healthy(conn):
                    with suppress(library.Error):
                        conn.close()
                    conn = None
            _answer(group)
        if conn is not None:
            with suppress(library.Error):
                conn.close()
        if lock >= 0:
            os.close(lock)

    def _commit(self, conn: sqlite3.Connection, lock: int, group: list[Request]) -> None:
        if lock >= 0:
            # SQLite's own busy handler is unfair (98 to 2 between two processes): wait in the kernel's queue.
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self._transaction(conn, group)
        finally:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_UN)
        self.changes = conn.total_changes
        self.after_commit()
        if self.intercept is not None:
            for request in group:
                try:
                    self.intercept(request.verb, "after")
                except StoreError as error:
                    request.error = error

    def _transaction(self, conn: sqlite3.Connection, group: list[Request]) -> None:
        conn.execute("BEGIN IMMEDIATE" if self._write else "BEGIN")
        try:
            for request in group:
                request.error = None
                before = conn.total_changes
                try:
                    if self.intercept is not None:
                        self.intercept(request.verb, "before")
                    request.value = request.operation(conn)
                except HoldfastError as error:
                    if conn.total_changes != before:
                        raise
                    request.error = error  # refused before its first write: the others go on
            conn.execute("COMMIT")
        except BaseException:
            self.after_rollback()
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            if len(group) == 1:
                raise
            # One of them spoilt the group: each gets a transaction of its own.
            for request in group:
                try:
                    self._transaction(conn, [request])
                    self.after_commit()
                except BaseException as error:
                    request.error = translate(error, request.verb)


def _healthy(conn: sqlite3.Connection) -> bool:
    try:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1")
    except library.Error:
        return False
    return True


def _answer(group: list[Request]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in group:
        loops.setdefault(request.loop, []).append(request)
    for loop, requests in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, requests)


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        request.resolve()


def translate(error: BaseException, verb: str) -> BaseException:
    """The engine's own error for what the driver raised, with the driver's chained."""
    if isinstance(error, HoldfastError) or not isinstance(error, (library.Error, OSError)):
        return error
    code = getattr(error, "sqlite_errorname", "") or ""
    answer: StoreError
    if code.startswith("SQLITE_FULL") or getattr(error, "errno", None) == 28:
        answer = StoreFull("the disk is full", verb=verb, fix="free some space; nothing was lost, try again then")
    elif code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        answer = StoreTimeout(
            "the database file is locked by another writer", verb=verb, fix="end the long transaction that holds it"
        )
    elif code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        answer = StoreCorrupt(f"the file is not a sound database: {error}", verb=verb, fix="restore it from a backup")
    elif code.startswith("SQLITE_READONLY"):
        answer = StoreUnreachable(f"the file cannot be written: {error}", verb=verb, fix="check its permissions")
    else:
        answer = StoreUnreachable(f"SQLite refused: {error}", verb=verb, fix="check the path and its folder")
    answer.__cause__ = error
    return answer
