"""Remembers the connections of one event loop: few, opened when a call waits for one, the last used taken first."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from limpet.stores.errand import errand
from limpet.stores.postgres import trouble
from limpet.stores.postgres.connection import Connection, Crowded, open_connection
from limpet.stores.postgres.trouble import TROUBLE
from limpet.stores.postgres.url import PostgresUrl
from limpet.stores.server.client import Reach
from limpet.stores.server.trouble import Lost

GROW_S: Final = 0.01  # most verbs take a millisecond: a call that waits longer than this needs another connection
THRIFTY_S: Final = 1.0  # the same where one connection should do: a slow answer is no reason for another
IDLE_S: Final = 10.0  # a connection that was not needed for so long is closed, unless it is the last or listens

logger = logging.getLogger("limpet.stores.postgres")


class Pool:
    """The connections of one loop. A call that finds none free waits in line until one is, or a new one is there."""

    def __init__(self, url: PostgresUrl) -> None:
        self.url = url
        self.dropped = False
        self.reach = Reach(logger)
        self.pooled = False  # a pooler stands between us and the server
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: deque[asyncio.Future[Connection]] = deque()
        self._opening: set[asyncio.Task[Connection]] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._growing: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self.thrifty = False  # one connection should do: what comes on top is closed when it is free again

    def take(self) -> Connection | None:
        """A free connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def wait(self, deadline: float) -> Connection:
        """A connection, as soon as it is this caller's turn. Raises why none can be had."""
        if self.dropped:
            raise Lost("the store was closed", sent=False)
        future: asyncio.Future[Connection] = self._loop.create_future()
        self._waiting.append(future)
        if not self._connections:
            self._open_more()
        elif self._growing is None:
            # One that is in use is free again in a moment, and a new one costs the server a process.
            self._growing = self._loop.call_later(THRIFTY_S if self.thrifty else GROW_S, self._grow)
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._freed(future.result())  # it came in the last moment
            if isinstance(error, TimeoutError):
                raise self.reach.why or Crowded(f"all {self.url.pool} connections of this loop were in use") from None
            raise

    def warm(self) -> bool:
        """True when there is a connection; else one is opened, although no call waits for it."""
        if not (self._connections or self._opening or self._later or self.dropped):
            self._open()
        return bool(self._connections)

    # -- connections that listen, too

    async def hold(self, deadline: float) -> Connection:
        """A connection for a caller that sends several requests on it, and then gives it back."""
        connection = self.take() or await self.wait(deadline)
        connection.freed = None
        return connection

    def give_back(self, connection: Connection) -> None:
        """The connection is free for all calls again."""
        connection.freed = self._freed
        self._freed(connection)

    def take_out(self, connection: Connection) -> bool:
        """Take this connection, if it is unused."""
        if connection not in self._idle:
            return False
        self._idle.remove(connection)
        return True

    def let_go(self) -> None:
        """Close connections that are unused and have no listener."""
        for connection in [connection for connection in self._idle if connection.notified is None]:
            self._close(connection)

    # -- connections come

    def _grow(self) -> None:
        self._growing = None
        self._open_more()

    def _open_more(self) -> None:
        """Open as many connections as are waited for; one at a time while the server cannot be reached."""
        if self._later is not None or self.dropped:
            return
        waiting = sum(not future.done() for future in self._waiting)
        most = 1 if self.reach.failures else self.url.pool
        while len(self._opening) < min(waiting, most) and len(self._opening) + len(self._connections) < self.url.pool:
            self._open()

    def _open(self) -> None:
        opening = errand(open_connection(self.url), self._loop)
        self._opening.add(opening)
        opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Task[Connection]) -> None:
        self._opening.discard(opening)
        if opening.cancelled():
            self._open_more()  # by code that cancels all tasks of a loop: a call may still wait
            return
        error = opening.exception()
        if error is not None:
            self._failed(error)
            return
        connection = opening.result()
        if self.dropped:
            connection.close()
            return
        self.reach.reached(self.url.shown)
        self.pooled = connection.pooled
        self._connections.add(connection)
        connection.freed, connection.ended = self._freed, self._ended
        self._freed(connection)
        self._open_more()

    def _failed(self, error: BaseException) -> None:
        """No connection: the next one is tried after a while, for as long as a call waits."""
        if not isinstance(error, TROUBLE):
            self._loop.call_exception_handler({"message": "a connection could not be opened", "exception": error})
        self.reach.failed(error, self.url.shown)
        at_once = self.reach.at_once and trouble.is_refused(error)
        if at_once or trouble.hopeless(error, "connect", self.url.shown) is not None:
            while self._waiting:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_exception(error)
            return
        pause_s = self.reach.pause()
        if self._later is None:
            self._later = self._loop.call_later(pause_s, self._again)

    def _again(self) -> None:
        self._later = None
        self._open_more()

    # -- connections are handed on, and go

    def _freed(self, connection: Connection) -> None:
        """Give a connection to the call that has waited longest."""
        if connection.closed:
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(connection)
                return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if len(self._idle) > 1:
            self._thin_out(connection.idle_since)

    def _thin_out(self, now: float) -> None:
        """Close what was not needed for a while; the one that listens stays, else the one used last."""
        kept = next((connection for connection in self._idle if connection.notified is not None), self._idle[-1])
        for connection in self._idle[:]:
            if connection is not kept and (self.thrifty or connection.idle_since < now - IDLE_S):
                self._close(connection)

    def _close(self, connection: Connection) -> None:
        """Let go of an unused one: it is not lost."""
        self._idle.remove(connection)
        self._connections.discard(connection)
        connection.ended = None
        connection.close()

    def _ended(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection.farewell is not None:
            self._farewells.add(connection.farewell)
            connection.farewell.add_done_callback(self._farewells.discard)
        if connection in self._idle:
            self._idle.remove(connection)
        if not self._connections:
            self.reach.cut = True
        self._open_more()

    def drop(self) -> None:
        """Let go of all connections, for good: who still waits is told."""
        self.dropped = True
        for task in (*self._opening, *self._farewells):
            task.cancel()
        for timer in (self._later, self._growing):
            if timer is not None:
                timer.cancel()
        for connection in list(self._connections):
            connection.close()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(Lost("the store was closed", sent=False))
                future.exception()
