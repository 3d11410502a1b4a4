"""Carries commands and answers over one connection that every call of one event loop shares.

Calls are answered in the order in which they were sent, so no call waits for a turn. The connection repeats nothing: it
says whether a command had left this process, and its caller decides.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Any, Final, cast

from hiredis import HiredisError, Reader, pack_command
from msgspec import Struct

from limpet.stores.redis.url import Where
from limpet.stores.server.trouble import Lost, Silent, fail

Word = bytes | str | int

# An unused connection is probed before a load balancer forgets it (often after a minute), and one that
# was cut in silence is noticed in three quarters of a minute.
KEEPALIVE_S: Final = 30
KEEPALIVE_AGAIN_S: Final = 5
KEEPALIVE_TIMES: Final = 3


class Refusal(Exception):
    """The server's answer is an error: returned like any other answer, and raised only if the caller cannot continue.

    `code` is its first word, which is stable; the rest is for people. One refusal has no word of its own, and is known
    by its text: it is all that a server without a connection to spare says before it hangs up.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def code(self) -> str:
        if self.text.startswith("ERR max number of clients"):
            return "MAXCLIENTS"
        return self.text.partition(" ")[0]


class Login(Struct, frozen=True):
    """What a server is told first."""

    user: str = ""
    password: str = ""
    db: int = 0

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, db={self.db})"


class Connection(asyncio.Protocol):
    """One connection. Belongs to the loop that opened it."""

    def __init__(self, where: Where, loop: asyncio.AbstractEventLoop) -> None:
        self.where = where
        self.closed = True
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader = Reader(replyError=Refusal)
        self._asked: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._unsent: list[bytes] = []  # of the last that were asked
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._retired = False
        self._farewell: Refusal | None = None  # why the server hung up before it was asked anything
        self.heard: Callable[[bytes], None] | None = None  # called with messages of channels, once one is subscribed to
        self.ended: Callable[[], None] | None = None  # called when it has ended, however that came

    def send(self, command: tuple[Word, ...], deadline: float) -> asyncio.Future[Any]:
        """Request; the answer is there by `deadline` (loop time), or the whole connection is given up.

        Answers after a missing one would be taken for it, and a server that is silent to one is silent to all.
        A caller that stops waiting costs nothing: the answer is dropped when it comes.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._farewell is not None:
            future.set_result(self._farewell)
            return future
        if self.closed or self._transport is None:
            fail(future, Lost("the connection is closed", sent=False))
            return future
        packed = pack_command(command)  # type: ignore[arg-type]  # its stub knows tuples of one alone
        if not self._asked:
            self._transport.write(packed)
        else:
            # While others wait, what is asked in one turn of the loop leaves in one packet.
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(packed)
        self._asked.append((future, deadline))
        if deadline < self._alarm_at:
            self._set_alarm(deadline)
        return future

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            packed, self._unsent = self._unsent, []
            self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    # -- what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not subclass asyncio.Transport
        self.closed = False
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        reader, asked = self._reader, self._asked
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not False:
                if self.heard is not None and type(answer) is list and answer[0] == b"message":
                    self.heard(answer[2])
                    continue
                if not asked:
                    if not isinstance(answer, Refusal):
                        raise HiredisError("an answer without a request")
                    self._farewell = answer
                    self.drop(f"the server hung up: {answer.text}")
                    return
                future, _ = asked.popleft()
                if not future.done():
                    future.set_result(answer)
        except HiredisError as error:
            self.drop(f"what answers at {self.where} does not speak Redis's protocol ({error})")
        if self._retired and not asked:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the server closed the connection" if exc is None else f"the connection broke ({exc})")

    # -- how it ends

    def close(self) -> None:
        """End the connection; who still waits for an answer gets none. Idempotent."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.close()
        self._end("the connection was closed")

    def drop(self, why: str) -> None:
        """Give up a connection that cannot be trusted any more."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
        self._end(why)

    def retire(self) -> None:
        """End the connection when all pending requests have been answered."""
        self._retired = True
        if not self._asked:
            self.close()

    def _end(self, why: str) -> None:
        self.closed = True
        self._transport = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        asked, unsent = self._asked, len(self._unsent)
        self._asked, self._unsent = deque(), []
        for left, (future, _) in zip(range(len(asked), 0, -1), asked, strict=True):
            fail(future, Lost(why, sent=left > unsent))
        if self.ended is not None:
            self.ended()

    # -- deadlines: one timer for all of them, because nearly all are met

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm, self._alarm_at = None, math.inf
        now = self._loop.time()
        late = [future for future, deadline in self._asked if deadline <= now]
        if not late:
            if self._asked:
                self._set_alarm(min(deadline for _, deadline in self._asked))
            return
        for future in late:
            fail(future, Silent(f"{self.where} did not answer in time"))
        self.drop("the server did not answer another call in time")


async def open_connection(where: Where, login: Login, timeout_s: float, tls: SSLContext | None = None) -> Connection:
    """A connection that is ready for commands. Raises OSError (TimeoutError included), Lost or Refusal."""
    loop = asyncio.get_running_loop()
    connection = Connection(where, loop)
    try:
        async with asyncio.timeout(timeout_s):
            if where.path:
                await loop.create_unix_connection(lambda: connection, where.path)
            else:
                await loop.create_connection(
                    lambda: connection, where.host, where.port, ssl=tls, server_hostname=where.host if tls else None
                )
            await _greet(connection, login)
    except BaseException:
        connection.drop("it could not be opened")
        raise
    return connection


async def _greet(connection: Connection, login: Login) -> None:
    must: list[tuple[Word, ...]] = []
    if login.password:
        must.append(("AUTH", login.user, login.password) if login.user else ("AUTH", login.password))
    if login.db:
        must.append(("SELECT", login.db))
    answers = [connection.send(command, math.inf) for command in must]
    # The name is for people who read CLIENT LIST. The answer shows that the server lives and takes us.
    named = connection.send(("CLIENT", "SETNAME", "limpet"), math.inf)
    for answer in answers:
        if isinstance(refusal := await answer, Refusal):
            raise refusal
    # Who may not set a name works without, and so does a proxy that does not know the command.
    if isinstance(refusal := await named, Refusal) and refusal.code not in ("NOPERM", "ERR"):
        raise refusal


def _keep_alive(sock: socket.socket | None) -> None:
    if sock is None or sock.family == getattr(socket, "AF_UNIX", None):
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))  # macOS has its own name
        if idle is not None:
            sock.setsockopt(socket.IPPROTO_TCP, idle, KEEPALIVE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_AGAIN_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_TIMES)
