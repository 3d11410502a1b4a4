"""Receives wake-ups: on one of the connections of an event loop, which is used for statements, too.

Each loop has a channel of its own, its address: a session is told where it last claimed, a watcher where it watches. A
message reaches the sleepers of all loops. A second channel is common to all processes of a namespace: the transaction
of another program says on it that it has posted something, since only its commit shows the post to processes that could
look for sleepers. A message that is sent while nothing listens is lost. So a process gives its address away only when
it listens, and all sleepers are woken once a connection is back. Behind a pooler nothing can be received: sleepers then
look once a second, unless `listen_url` names another way, which gets a connection of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import Any, Final

from limpet.stores.postgres import trouble
from limpet.stores.postgres.connection import Connection, open_connection
from limpet.stores.postgres.pool import Pool
from limpet.stores.postgres.trouble import TROUBLE
from limpet.stores.postgres.wire import in_schema
from limpet.stores.server.trouble import Lost
from limpet.stores.server.wakeup_receiver import Receiver
from limpet.stores.waiters import FINISHED, URGENT, WORK, Waiters

FIRST_S: Final = 2.0  # how long who needs the address waits until it is listened to
PING_S: Final = 15.0  # how often a silent connection is felt for
POLL_S: Final = 1.0  # how often sleepers look when nothing can be heard
TEST: Final = b"t"  # what a receiver sends itself, to learn whether it receives
POSTED: Final = b"p"  # on the common channel: another transaction has posted

logger = logging.getLogger("limpet.stores.postgres")


class WakeupReceiver(Receiver[Connection]):
    """Listens on the channel of one loop, and on the common one."""

    def __init__(self, pool: Pool, schema: str, waiters: Waiters, *, ping_s: float = PING_S) -> None:
        super().__init__(waiters, logger)
        self.url = pool.url
        self._pool = pool
        self.deaf = False  # nothing can be heard on this way
        self._address = f"limpet-{waiters.mailbox}-{os.urandom(4).hex()}"
        self._schema = schema
        self._ping_s = ping_s
        self._sessions: set[bytes] = set()
        self._tested: asyncio.Future[None] | None = None
        self._awaited = False

    @property
    def address(self) -> str | None:
        """Where this loop can be told things; None when it hears nothing."""
        return None if self.deaf else self._address

    async def subscribe(self, session: str | None = None) -> str | None:
        """The address, once it is listened to. `session` will sleep for work that others post."""
        if session is not None:
            self._sessions.add(session.encode())
        if self._connection is None and not self.deaf:
            self.listen()
            if self._opening is not None and not self._awaited:
                # Only once: a way for wake-ups that is shut must not hold up any beat.
                await asyncio.wait((self._opening,), timeout=min(FIRST_S, self.url.timeout_s))
                self._awaited = True
            if self._connection is None:
                self._missed = True
        return self.address

    # -- connecting

    async def _connect(self) -> Connection | None:
        if self.url.listen is not None:
            # Who names another way says that LISTEN works there; it is tried all the same.
            return await self._if_it_listens(await open_connection(self.url.listening))
        connection = await self._pool.hold(self._loop.time() + self.url.timeout_s)
        if connection.pooled:
            self._pool.give_back(connection)
            return None
        listening = await self._if_it_listens(connection)
        if listening is not None:
            self._pool.give_back(listening)
        return listening

    async def _if_it_listens(self, connection: Connection) -> Connection | None:
        """The connection, if it listens; else it is closed."""
        try:
            hears = await self._listens(connection)
        except BaseException:
            connection.close()
            raise
        if not hears:
            connection.close()
            return None
        return connection

    async def _listens(self, connection: Connection) -> bool:
        """Listen, and tell itself something."""
        deadline = self._loop.time() + self.url.timeout_s
        ((common,),) = await connection.script(in_schema("SELECT lp.channel_1()", self._schema), deadline)
        self._tested = self._loop.create_future()
        connection.notified = self._received
        await connection.script(f'LISTEN "{self._address}"; LISTEN "{common}"', deadline)
        await connection.script(f"SELECT pg_notify('{self._address}', '{TEST.decode()}')", deadline)
        await asyncio.wait((self._tested,), timeout=deadline - self._loop.time())
        return self._tested.done()

    def _connected(self, connection: Connection | None) -> None:
        if connection is None:
            self._give_up()
        elif connection.closed:
            self._again(Lost("the connection ended", sent=False))
        else:
            self._connection = connection
            connection.silenced = self._ended
            self._failures = 0
            if self._missed:
                self._missed = False
                self._waiters.rouse()
            self._later = self._loop.call_later(self._ping_s, self._ping)

    def _give_up(self) -> None:
        """Nothing can be heard: from here on sleepers look for themselves."""
        self.deaf = True
        way = "listen_url" if self.url.listen is not None else "a pooler"
        logger.warning(
            "%s leads over %s that cannot LISTEN: workers look for jobs every %g s instead of being woken "
            "(name the server itself: ?listen_url=host:port)",
            self.url.listening.shown,
            way,
            POLL_S,
        )
        self._poll()

    def _poll(self) -> None:
        self._waiters.rouse()
        self._later = self._loop.call_later(POLL_S, self._poll) if self._running else None

    def _ended(self, connection: Connection) -> None:
        if self._connection is connection:
            self._again(Lost("the connection ended", sent=False))

    def _again(self, error: BaseException) -> None:
        if not isinstance(error, TROUBLE):
            self._unexpected(error)
        self._connection, self._missed = None, True
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not self._running:
            return
        where = self.url.listening.shown
        hopeless = trouble.hopeless(error, "listen", where) is not None
        self._interrupted(error, where, logging.WARNING if hopeless else logging.INFO)
        if self._failures and self.url.listen is not None:
            self._waiters.rouse()  # the way for statements may be open all the time
        self._open_later(POLL_S if hopeless else None)

    def resubscribe(self) -> None:
        """Hear the channel that the schema has now."""
        if self._connection is not None:
            self._connection.close()

    # -- hearing

    def _ping(self) -> None:
        """A frozen server, or a connection that was cut in silence, shows by a missing answer."""
        self._later = None
        connection = self._connection
        if connection is None:
            return
        if self.url.listen is None and not self._pool.take_out(connection):
            self._later = self._loop.call_later(self._ping_s, self._ping)  # it is in use, and so felt for
            return
        connection.script("SELECT 1", self._loop.time() + self.url.timeout_s).add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            if self._connection is not None:
                self._connection.close()
        elif self._connection is not None:
            self._later = self._loop.call_later(self._ping_s, self._ping)

    def _received(self, channel: bytes, message: bytes) -> None:
        kind, name = message[:1], message[1:]
        if kind == POSTED:
            self._sessions = {session for session in self._sessions if self._waiters.deliver(WORK, session)}
            for session in self._sessions if name == URGENT else ():
                self._waiters.deliver(URGENT, session)
        elif kind == TEST:
            if self._tested is not None and not self._tested.done():
                self._tested.set_result(None)
        elif kind == FINISHED:
            with suppress(ValueError):  # any role that may connect may send nonsense
                self._waiters.deliver(kind, bytes.fromhex(name.decode()))
        else:
            self._waiters.deliver(kind, name)
