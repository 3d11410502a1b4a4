"""Receives wake-ups: each event loop has a mailbox, a list on the server, and a connection that only waits on it.

What a loop takes from its mailbox is lost if the loop does not run, so each has a mailbox of its own: a message for a
session goes where it last claimed, one for a watcher where it watches. A message reaches the sleepers of all loops. A
mailbox keeps messages until its loop waits on it. Messages that died with a server are made up for: once the connection
is back, all sleepers wake.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from msgspec import Struct

from limpet.stores.redis import trouble
from limpet.stores.redis.connection import Connection, Refusal
from limpet.stores.redis.fields import SENT
from limpet.stores.redis.keys import K, meta_key
from limpet.stores.redis.server import TROUBLE, Server
from limpet.stores.redis.url import RedisUrl
from limpet.stores.server.trouble import Lost
from limpet.stores.server.wakeup_receiver import Receiver
from limpet.stores.waiters import HANDED, Waiters

WAIT_S: Final = 5  # how long the server waits for a message: its answer shows that it lives
GUARD: Final = 2  # after this many silent waits it is frozen or out of reach
SENT_BYTES: Final = SENT.size
MESSAGES: Final = 100  # fetched at once

logger = logging.getLogger("limpet.stores.redis")


class Sent(Struct, frozen=True):
    """A job that a script has claimed for a session that slept."""

    session: str
    number: int
    token: int
    claimed_at_ms: int
    awake: bool
    id: bytes
    record: bytes


_read = SENT.reader("token", "number", "claimed", "awake", "id", "length").unpack_from


def _sent_of(message: bytes) -> Sent:
    t1, t2, t3, n1, n2, n3, at, at_low, awake, id, length = _read(message)
    name = message[SENT_BYTES : SENT_BYTES + length].decode()
    token, number = t1 << 48 | t2 << 32 | t3, n1 << 48 | n2 << 32 | n3
    return Sent(name, number, token, at << 32 | at_low, bool(awake), id, message[SENT_BYTES + length :])


class WakeupReceiver(Receiver[Connection]):
    """Waits on the mailbox of one loop. Until it listens, the mailbox keeps what comes."""

    def __init__(self, url: RedisUrl, tag: str, waiters: Waiters, *, wait_s: float = WAIT_S) -> None:
        super().__init__(waiters, logger)
        self.address = f"{waiters.mailbox}-{os.urandom(4).hex()}"
        self._key = K.mailbox.under(meta_key(tag), self.address.encode())
        self._server = Server(url, tag)
        self._wait_s = wait_s

    async def _connect(self) -> Connection:
        return await self._server.open()

    def _connected(self, connection: Connection | None) -> None:
        self._connection = connection
        if self._missed:
            self._waiters.rouse()
        self._missed = True  # from now on: what the server sends to a connection that breaks is lost
        self._wait()

    def _wait(self) -> None:
        if self._connection is not None:
            guard = self._loop.time() + GUARD * self._wait_s
            self._connection.send(("BLPOP", self._key, str(self._wait_s)), guard).add_done_callback(self._received)

    def _received(self, answered: asyncio.Future[Any]) -> None:
        answer = self._answer(answered)
        if answer is not None and self._connection is not None:
            # The rest of the list and the next wait leave in one packet.
            guard = self._loop.time() + GUARD * self._wait_s
            self._connection.send(("LPOP", self._key, MESSAGES), guard).add_done_callback(self._received_more)
            self._deliver(answer[1])
        self._wait()

    def _received_more(self, answered: asyncio.Future[Any]) -> None:
        for message in self._answer(answered) or ():
            self._deliver(message)

    def _deliver(self, message: bytes) -> None:
        if message[:1] != HANDED:
            self._waiters.deliver(message[:1], message[1:])
            return
        sent = _sent_of(message[1:])
        self._waiters.hand(sent.session, sent)

    def _answer(self, answered: asyncio.Future[Any]) -> list[bytes] | None:
        """The messages; trouble ends the connection."""
        if answered.cancelled():
            return None
        error = answered.exception()
        answer = error or answered.result()
        if isinstance(answer, BaseException):
            self._again(answer)
            return None
        self._failures = 0
        messages: list[bytes] | None = answer
        return messages

    def _again(self, error: BaseException) -> None:
        if not isinstance(error, TROUBLE):
            self._unexpected(error)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop("it is of no use any more")
        if isinstance(error, Refusal) and trouble.remedy_of(error) == "moved" and connection is not None:
            self._server.home = trouble.target_of(error, connection.where)
        else:
            self._server.doubt()
        if self._running and self._later is None:
            level = logging.INFO if isinstance(error, Lost | OSError) else logging.WARNING
            self._interrupted(error, self._server, level)
            self._open_later()
