"""Runs transactions on one connection in one thread: what is asked while a commit is under way shares the next one.

A process has one such thread that writes and one that reads, and tells others what was committed.
"""

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

import msgspec

from limpet.core.errors import (
    LimpetError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnreachable,
)
from limpet.stores.sqlite.checkpoint import Checkpointer
from limpet.stores.sqlite.library import is_safe, library
from limpet.stores.sqlite.link import TRIES, Link, Replaced, StoreFile, forks
from limpet.stores.sqlite.sentry import Sentry
from limpet.stores.sqlite.tx import Known
from limpet.stores.sqlite.wake import WakeupReceiver
from limpet.stores.waiters import HANDED

ANSWER_S = 15.0  # longer than any commit takes: then a process stands still
CLOSE_S = 1.0  # how long closing waits for a commit that is under way: a locked file must not hold up the end
GROUP = 64  # operations that may share one commit: bounds how long the first of them waits for its answer

Operation = Callable[[sqlite3.Connection], Any]
Intercept = Callable[[str, str], None]


class Request:
    """One operation, and the loop that waits for its answer, if one does."""

    __slots__ = ("error", "future", "loop", "operation", "value", "verb")

    def __init__(self, verb: str, operation: Operation, loop: asyncio.AbstractEventLoop | None) -> None:
        self.verb = verb
        self.operation = operation
        self.loop = loop
        self.future: asyncio.Future[Any] | None = None if loop is None else loop.create_future()
        self.value: Any = None
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """True when its caller has given it up or has its answer."""
        return self.future is not None and self.future.done()

    def give_up(self, after_s: float) -> None:
        """There was no answer for this long."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(
                StoreTimeout(
                    f"the file did not answer within {after_s:g} s; what was asked may have happened all the same",
                    verb=self.verb,
                    fix="look for a process that stands still in the middle of a commit",
                )
            )

    def resolve(self) -> None:
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class Writer:
    """The one thread that writes (or, with `write=False`, reads) through a link."""

    def __init__(
        self,
        link: Link,
        *,
        write: bool = True,
        answer_s: float = ANSWER_S,
        committed: Callable[[], None] = lambda: None,
        rolled_back: Callable[[], None] = lambda: None,
    ) -> None:
        self.link = link
        self._write = write
        self._answer_s = answer_s
        self._requests: deque[Request] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.changes = 0  # rows changed by this connection so far
        self._after_commit = committed
        self._after_rollback = rolled_back
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._thread = threading.Thread(target=self._run, name="limpet-sqlite", daemon=True)
        self._thread.start()

    async def submit(self, verb: str, operation: Operation) -> Any:
        """Run `operation` inside a transaction and answer what it returned, after the commit."""
        loop = asyncio.get_running_loop()
        request = Request(verb, operation, loop)
        with self._wake:
            if self._closing:
                raise StoreUnreachable("the store was closed", verb=verb, fix="open it again")
            self._requests.append(request)
            self._wake.notify()
        # A process that stands still inside its commit blocks all others: callers must be told.
        alarm = loop.call_later(self._answer_s, request.give_up, self._answer_s)
        try:
            assert request.future is not None
            return await request.future
        finally:
            alarm.cancel()

    def follow(self, verb: str, operation: Operation) -> None:
        """Run `operation` next, for no caller. Called by this thread itself, so even one that closes comes to it."""
        self._requests.appendleft(Request(verb, operation, None))

    def close(self) -> None:
        """Finish what was asked, then stop; a thread that stands still is left behind. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S)

    # -- the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._requests and not self._closing:
                    self._wake.wait()
                if not self._requests:
                    break
                group = [self._requests.popleft() for _ in range(min(GROUP, len(self._requests)))]
            group = [request for request in group if not request.is_over]
            try:
                self._serve(group)
            except BaseException as error:
                for request in group:
                    request.error = translate(error, request.verb)
            _answer(group)
        self.link.close()

    def _serve(self, group: list[Request]) -> None:
        """Commit to the file that has the name when the commit ends: for one that has lost it nothing is answered."""
        for _ in range(TRIES):
            with suppress(Replaced), self.link.use() as conn:
                try:
                    self._commit(conn, group)
                except Exception as error:
                    self._refuse_lost(error)
                    raise
                return
        raise StoreUnreachable("the file is replaced over and over", fix="end the program that replaces it")

    def _commit(self, conn: sqlite3.Connection, group: list[Request]) -> None:
        lock = self.link.lock_file
        if lock >= 0:
            # SQLite's own busy handler is unfair (98 to 2 between two processes): wait in the kernel's queue.
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            self._transaction(conn, group)
        finally:
            if lock >= 0:
                fcntl.flock(lock, fcntl.LOCK_UN)
        self.changes = conn.total_changes
        self._committed()
        if self.intercept is not None:
            for request in group:
                try:
                    self.intercept(request.verb, "after")
                except StoreError as error:
                    request.error = error

    def _committed(self) -> None:
        if not self.link.is_current:
            self._after_rollback()
            raise Replaced
        self._after_commit()

    def _refuse_lost(self, error: Exception) -> None:
        """Raise Replaced when the file or its log lost its name: then an error says nothing of the store."""
        if not self.link.is_current:
            raise Replaced from error

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
                except LimpetError as error:
                    if conn.total_changes != before:
                        raise
                    request.error = error  # refused before its first write: the others go on
            conn.execute("COMMIT")
        except BaseException:
            self._after_rollback()
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            if len(group) == 1:
                raise
            # One of them spoilt the group: each gets a transaction of its own.
            for request in group:
                try:
                    self._transaction(conn, [request])
                    self._committed()
                except Replaced:
                    raise
                except Exception as error:
                    self._refuse_lost(error)
                    request.error = translate(error, request.verb)


class Process:
    """Everything that belongs to one pid: threads, connections, socket. A fork gets its own."""

    def __init__(
        self,
        path: str | None,
        prefix: str,
        connect: Callable[[], sqlite3.Connection],
        undelivered: Callable[[Process, bytes, bool], Operation],
    ) -> None:
        self.pid = os.getpid()
        self._undelivered = undelivered  # what takes a job back whose message found no buffer, or no process
        self.known = Known()
        self.prefix = prefix
        self.tells: list[tuple[str, bytes, bytes]] = []
        self.stored: set[int] = set()
        self.receiver = WakeupReceiver(path)
        self.links: list[Link] = []
        file = StoreFile(path) if path else None

        def link(lock_path: str | None = None, on_other_file: Callable[[], None] = lambda: None) -> Link:
            new = Link(connect, lock_path, file, on_other_file)
            self.links.append(new)
            # Memory would be lost with its connection: it stays, and a child is refused.
            return forks.watch(new) if path else new

        lock_path = f"{path}-lock" if path else None
        writing = link(lock_path, on_other_file=self.known.stored.clear)
        self.writer = Writer(writing, committed=self._committed, rolled_back=self._rolled_back)
        self.checkpointer = Checkpointer(link()) if path and is_safe() else None
        self.sentry = Sentry(link(), prefix) if path else None
        # Memory has one connection; a file is read beside the writer, so a long page delays no commit.
        self.reader = Writer(link(), write=False) if path else self.writer

    def _rolled_back(self) -> None:
        self.tells.clear()
        self.stored.clear()

    def _committed(self) -> None:
        if self.stored:
            self.known.stored |= self.stored
            self.stored.clear()
        if self.checkpointer is not None and self.writer.changes >= self.checkpointer.due_at:
            self.checkpointer.copy(self.writer.changes)
        tells, self.tells[:] = list(self.tells), []
        for address, kind, said in tells:
            delivery = self.receiver.send(address, kind, said)
            if kind == HANDED and delivery != "sent":
                self.writer.follow("hand_off", self._undelivered(self, said, delivery == "gone"))

    def close(self) -> None:
        self.writer.close()
        if self.checkpointer is not None:
            self.checkpointer.close()
        self.reader.close()
        self.receiver.close()
        if self.sentry is not None:
            self.sentry.link.close()


def _answer(group: list[Request]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[Request]] = {}
    for request in group:
        if request.loop is not None:
            loops.setdefault(request.loop, []).append(request)
    for loop, requests in loops.items():
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(_resolve, requests)


def _resolve(requests: list[Request]) -> None:
    for request in requests:
        request.resolve()


# The driver's words for values that cannot be bound or rows that cannot be; the file itself is well.
NOT_ITS_TROUBLE: tuple[type[BaseException], ...] = (
    library.IntegrityError,
    library.DataError,
    library.InterfaceError,
    library.ProgrammingError,
)


def translate(error: BaseException, verb: str) -> BaseException:
    """The engine's own error for what the driver raised, with the driver's chained."""
    if isinstance(error, msgspec.DecodeError):
        corrupt = StoreCorrupt(f"a stored record cannot be decoded: {error}", verb=verb, fix="restore it from a backup")
        corrupt.__cause__ = error
        return corrupt
    if isinstance(error, LimpetError) or not isinstance(error, (library.Error, OSError)):
        return error
    if isinstance(error, NOT_ITS_TROUBLE):
        return error  # what was asked cannot be written, now or later: no reason to ask again
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
