"""Carries statements and answers over one connection, one at a time, through the driver's own libpq.

The socket is watched for as long as the connection lives, so a call costs no registration, notifications arrive by
themselves, and a connection that ends while it is unused is known to be dead. It repeats nothing: the caller learns
whether the request had left this process, and decides.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import psycopg
from psycopg.adapt import Transformer
from psycopg.conninfo import make_conninfo
from psycopg.pq import DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.types.json import set_json_loads

from limpet.stores.errand import errand
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.postgres.wire import Statement
from limpet.stores.server.trouble import Lost, Silent, fail

Row = tuple[Any, ...]
Said = list[bytes | None]  # the parameters of a statement, in binary form
Then = Callable[["Connection", list[Row]], None]

OLDEST: Final = 140_000  # the functions cannot be created on an older one
CANCEL_S: Final = 2.0  # how long a server may take to accept that no caller waits for its answer any more

_BINARY: Final = Format.BINARY
# After these the connection is of no more use, whether or not the server hangs up: it has become a standby.
_LAST_WORDS: Final = ("25006",)
_GOOD: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)

# What a new connection is asked first: who really answers, and whether it can do what the engine needs.
_PROBE: Final = """
SELECT pg_backend_pid(), current_setting('default_transaction_isolation'), pg_is_in_recovery(),
  current_setting('default_transaction_read_only')::boolean, current_setting('server_version_num')::integer
"""


class Refusal(Exception):
    """The server's answer is an error. `code` is its SQLSTATE, which is stable; the rest is for people."""

    def __init__(
        self,
        code: str,
        text: str,
        *,
        hint: str = "",
        detail: str = "",
        context: str = "",
        at: int = 0,
        fatal: bool = False,
    ) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text
        self.hint = hint
        self.detail = detail
        self.context = context
        self.at = at  # which character of the statement it is about; 0: unknown
        self.fatal = fatal  # it was the last that this connection said


class Crowded(Exception):
    """Every connection was in use until the time was over."""


class Unfit(Exception):
    """The server is there, and is not one that the engine can work on. `code` says why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Connection:
    """One connection. Belongs to the loop that opened it."""

    def __init__(self, driver: psycopg.AsyncConnection[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.closed = False
        self.pooled = False  # a pooler in between hands our statements to whichever server process is free
        self.prepares = False
        self.idle_since = 0.0
        self.freed: Callable[[Connection], None] | None = None  # called when it can be asked again
        self.ended: Callable[[Connection], None] | None = None  # called when it has ended, however that came
        self.silenced: Callable[[Connection], None] | None = None  # called then, too, if a receiver listens on it
        self.notified: Callable[[bytes, bytes], None] | None = None  # called with channel and payload of a NOTIFY
        self._driver = driver
        self._libpq: PGconn = driver.pgconn
        self._loop = loop
        self._descriptor = self._libpq.socket
        self._repeats = 2 if self._libpq.ssl_in_use else 1  # before 18 libpq may leave a rest of what TLS has read
        self._loader = Transformer(driver)
        self._prepared: dict[bytes, bytes] = {}  # under which name the server knows a statement
        self._renamed = 0
        self._preparing: tuple[bytes, bytes] | None = None
        self._piped = False
        self._future: asyncio.Future[list[Row]] | None = None
        self._then: Then | None = None
        self._results: list[PGresult] = []
        self._deadline = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._writing = False
        self.farewell: asyncio.Task[None] | None = None  # tells the server that no caller waits any more
        loop.add_reader(self._descriptor, self._readable)

    # -- asking

    @property
    def backend_pid(self) -> int:
        """The process that greeted us, as the connection's key says."""
        return self._libpq.backend_pid

    def send(
        self, statement: Statement, said: Said, deadline: float, then: Then | None = None
    ) -> asyncio.Future[list[Row]]:
        """Ask; the answer is there by `deadline` (loop time), or the connection is given up.

        `then` is called as soon as the answer is there and may ask the next thing, before any other caller can.
        A caller that stops waiting costs nothing: the answer is dropped when it comes.
        """
        future = self._begin(deadline)
        if future.done():
            return future
        self._then = then
        try:
            if not self.prepares:
                self._libpq.send_query_params(statement.text, said, None, statement.formats, _BINARY)
            elif (name := self._prepared.get(statement.name)) is not None:
                self._libpq.send_query_prepared(name, said, statement.formats, _BINARY)
            else:
                self._prepare(statement, said)
            self._flush()
        except psycopg.Error as error:
            self._end(str(error))
        return future

    def script(self, sql: str, deadline: float) -> asyncio.Future[list[Row]]:
        """Run statements without parameters, as text; the rows of the last one. Nothing of it is prepared."""
        future = self._begin(deadline)
        if not future.done():
            try:
                self._libpq.send_query(sql.encode())
                self._flush()
            except psycopg.Error as error:
                self._end(str(error))
        return future

    def forget(self) -> None:
        """What was prepared is gone, or means something else by now: prepare it again, under another name."""
        self._prepared.clear()
        self._renamed += 1

    def _prepare(self, statement: Statement, said: Said) -> None:
        """Prepare a statement and run it in one round trip: the last that a program asks leaves with it, too."""
        name = b"%s_%d" % (statement.name, self._renamed)
        self._libpq.enter_pipeline_mode()
        self._piped = True
        self._preparing = (statement.name, name)
        self._libpq.send_prepare(name, statement.text)
        self._libpq.send_query_prepared(name, said, statement.formats, _BINARY)
        self._libpq.pipeline_sync()

    def _begin(self, deadline: float) -> asyncio.Future[list[Row]]:
        assert self._future is None, "a connection is asked one thing at a time"
        future: asyncio.Future[list[Row]] = self._loop.create_future()
        if self.closed:
            fail(future, Lost("the connection is closed", sent=False))
            return future
        self._future, self._deadline = future, deadline
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return future

    def _flush(self) -> None:
        if self._libpq.flush():
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._descriptor, self._writable)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(self._descriptor)

    # -- what the loop calls

    def _writable(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self._end(str(error))

    def _readable(self) -> None:
        libpq = self._libpq
        try:
            for _ in range(self._repeats):
                libpq.consume_input()
            while not self.closed and self._future is not None and not libpq.is_busy():
                result = libpq.get_result()
                if result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                    libpq.exit_pipeline_mode()
                    self._piped = False
                    self._answered()
                elif result is not None:
                    self._results.append(result)
                elif not self._piped:
                    self._answered()
            if not self.closed:
                while (notice := libpq.notifies()) is not None:
                    if self.notified is not None:
                        self.notified(notice.relname, notice.extra)
        except psycopg.Error as error:
            self._end(str(error))

    def _answered(self) -> None:
        """All of an answer is there."""
        results, self._results = self._results, []
        bad = next((result for result in results if result.status not in _GOOD), None)
        if self._preparing is not None and results and results[0] is not bad:
            self._prepared[self._preparing[0]] = self._preparing[1]
        then = self._then
        future = self._free()
        if bad is not None:
            failure = _failure(bad)
            fail(future, failure)
            if isinstance(failure, Lost) or failure.fatal or failure.code in _LAST_WORDS:
                self.close()
        else:
            try:
                rows = self._rows(results[-1]) if results else []
                if then is not None:
                    then(self, rows)
            except Exception as error:  # an unreadable answer must not leave a caller waiting
                fail(future, error)
            else:
                if not future.done():
                    future.set_result(rows)
        if self._future is None and self.freed is not None and not self.closed:
            self.freed(self)

    def _rows(self, result: PGresult) -> list[Row]:
        count = result.ntuples
        if not count:
            return []
        self._loader.set_pgresult(result)
        return self._loader.load_rows(0, count, tuple)

    def _free(self) -> asyncio.Future[list[Row]]:
        """Nothing is asked any more."""
        future, self._future = self._future, None
        assert future is not None
        self._then = self._preparing = None
        self._deadline = math.inf
        return future

    # -- deadlines: one timer, set again only when it rings, because nearly all are met

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        if self._loop.time() >= self._deadline:
            self._give_up()
        elif self._future is not None:
            self._set_alarm(self._deadline)

    def _give_up(self) -> None:
        """The time of a call is over. Its statement may wait for a lock for long: the server is told to stop it."""
        if self._future is not None:
            fail(self._future, Silent("the server did not answer in time"))
        self._leave()
        self.farewell = errand(self._cancel(), self._loop)
        self._over("the server did not answer in time")

    # -- how it ends

    async def _cancel(self) -> None:
        try:
            with suppress(psycopg.Error, OSError):
                await self._driver.cancel_safe(timeout=CANCEL_S)
        finally:
            self._libpq.finish()

    def close(self) -> None:
        """End the connection; who still waits for an answer gets none. Idempotent."""
        self._end("the connection was closed")

    def _end(self, why: str) -> None:
        if self.closed:
            return
        self._leave()
        self._libpq.finish()
        self._over(why)

    def _leave(self) -> None:
        """The loop forgets the socket, before its number can belong to another one."""
        self.closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            if self._writing:
                self._loop.remove_writer(self._descriptor)

    def _over(self, why: str) -> None:
        bad = next((result for result in self._results if result.status not in _GOOD), None)
        self._results = []
        if self._future is not None:
            # The server's last word says more than the end of the connection.
            fail(self._free(), _failure(bad) if bad is not None else Lost(_first_line(why), sent=True))
        for told in (self.ended, self.silenced):
            if told is not None:
                told(self)


def _failure(result: PGresult) -> Refusal | Lost:
    """What went wrong. An error without a code is libpq's own, about the connection."""

    def field(code: DiagnosticField) -> str:
        return (result.error_field(code) or b"").decode("utf-8", "replace")

    code, at = field(DiagnosticField.SQLSTATE), field(DiagnosticField.STATEMENT_POSITION)
    if not code:
        return Lost(_first_line(result.get_error_message()), sent=True)
    return Refusal(
        code,
        field(DiagnosticField.MESSAGE_PRIMARY),
        hint=field(DiagnosticField.MESSAGE_HINT),
        detail=field(DiagnosticField.MESSAGE_DETAIL),
        context=field(DiagnosticField.CONTEXT),
        at=int(at) if at.isdigit() else 0,
        fatal=field(DiagnosticField.SEVERITY_NONLOCALIZED) in ("FATAL", "PANIC"),
    )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0] or "the connection broke"


async def open_connection(url: PostgresUrl) -> Connection:
    """A connection that is ready for statements. Raises TimeoutError, psycopg.Error, Lost, Silent, Refusal or Unfit."""
    loop = asyncio.get_running_loop()
    connection: Connection | None = None
    timeout_s = url.connect_s
    try:
        async with asyncio.timeout(timeout_s):
            driver = await psycopg.AsyncConnection.connect(make_conninfo(**url.keywords()), autocommit=True)
            set_json_loads(msgspec.json.decode, driver)
            connection = Connection(driver, loop)
            await _greet(connection, url, loop.time() + timeout_s)
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


async def _greet(connection: Connection, url: PostgresUrl, deadline: float) -> None:
    (answer,) = await connection.script(_PROBE, deadline)
    pid, isolation, standby, read_only, version = answer
    if version < OLDEST:
        raise Unfit("version", f"it is PostgreSQL {version // 10_000}")
    connection.pooled = pid != connection.backend_pid
    connection.prepares = url.prepare == "yes" or (url.prepare == "auto" and not connection.pooled)
    connection.prepares = connection.prepares and psycopg.capabilities.has_pipeline()
    if standby or read_only:
        raise Unfit("read-only", "it is a standby" if standby else "its default_transaction_read_only is on")
    if isolation != "read committed":
        raise Unfit("isolation", f"its default_transaction_isolation is {isolation!r}")
