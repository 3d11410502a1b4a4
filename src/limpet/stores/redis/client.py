"""Carries a verb to the server and its answer back, through whatever happens in between, until its time is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from limpet.core.errors import StoreError
from limpet.stores.errand import errand
from limpet.stores.redis import trouble
from limpet.stores.redis.connection import Connection, Refusal, Word
from limpet.stores.redis.scripts import Script
from limpet.stores.redis.server import TROUBLE, Server
from limpet.stores.redis.url import RedisUrl, Where
from limpet.stores.sending import Sending, current_sending
from limpet.stores.server.client import Reach, Request, ServerClient, pause
from limpet.stores.server.trouble import Lost, closed, silent

logger = logging.getLogger("limpet.stores.redis")


class Command(Request):
    """A request to Redis: what is said, and what has to be said before."""

    __slots__ = ("detour", "load", "script", "sending", "words")

    connection: Connection | None

    def __init__(
        self, verb: str, words: tuple[Word, ...], script: Script | None, timeout_s: float, deadline: float, again: bool
    ) -> None:
        super().__init__(verb, timeout_s, deadline, again=again)
        self.words = words
        self.script = script
        self.load = False  # the server does not know the script
        self.detour: Where | None = None  # the node that has the keys of a slot on the move
        self.sending: Sending | None = None  # told how far it has come, when the caller wants to know


class Client(ServerClient[Command]):
    """The way from one event loop to the server: one connection, made when it is needed and made again when lost."""

    def __init__(self, url: RedisUrl, tag: str) -> None:
        self.server = Server(url, tag)
        super().__init__(self.server)
        self.reach = Reach(logger)
        self._timeout_s = url.timeout_s
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._side: Connection | None = None  # to the node that a slot is moving to
        self._not_before = 0.0
        self._unproven: Connection | None = None  # it is open, and has answered nothing yet
        self._dropped = False

    async def call(self, verb: str, *command: Word, deadline_s: float | None = None, again: bool = True) -> Any:
        """The answer to a command. With `again=False` it is not repeated once it may have happened."""
        return await self._call(verb, command, None, deadline_s, again)

    async def script(
        self,
        verb: str,
        script: Script,
        key: bytes,
        args: Sequence[Word],
        *,
        deadline_s: float | None = None,
        again: bool = True,
    ) -> Any:
        """The answer of a script. A server that does not know it (any more) is given it on the way."""
        return await self._call(verb, ("EVALSHA", script.sha, 1, key, *args), script, deadline_s, again)

    async def _call(
        self, verb: str, words: tuple[Word, ...], script: Script | None, deadline_s: float | None, again: bool
    ) -> Any:
        if self.intercept is not None:
            self.intercept(verb, "before")
        timeout_s = self._timeout_s if deadline_s is None else deadline_s
        request = Command(verb, words, script, timeout_s, self._loop.time() + timeout_s, again)
        if (sending := current_sending()) is not None:
            sending.begin(self.server.url.shown, self.reach.said)
            request.sending = sending
        while True:
            try:
                answer = await self._attempt(request)
            except TROUBLE as error:
                await self._recover(request, error)
                continue
            if isinstance(answer, Refusal):
                await self._recover(request, answer)
                continue
            if self._unproven is not None and request.connection is self._unproven:
                self._proven()
            if self.intercept is not None:
                self.intercept(verb, "after")
            return answer

    async def _attempt(self, request: Command) -> Any:
        connection = self._connection
        if connection is None or connection.closed or request.detour is not None:
            connection = await self._opened(request)
        request.connection = connection
        loading = asking = None
        if request.load and request.script is not None:
            request.load = False
            loading = connection.send(("SCRIPT", "LOAD", request.script.text), request.deadline)
        if request.detour is not None:
            request.detour = None
            asking = connection.send(("ASKING",), request.deadline)
        sent = connection.send(request.words, request.deadline)
        answer = await (sent if request.sending is None else _follow(request.sending, sent))
        for before in (loading, asking):
            if before is not None and isinstance(refusal := await before, Refusal):
                return refusal
        return answer

    # -- what went wrong

    async def _recover(self, request: Command, error: BaseException) -> None:
        if self._unproven is not None and request.connection is self._unproven:
            self.reach.why = error
        await super()._recover(request, error)

    def _remedy(self, request: Command, error: BaseException) -> float:
        if isinstance(error, Refusal):
            return self._remedy_of_refusal(request, error)
        if not isinstance(error, Lost):
            if (hopeless := trouble.hopeless(error, request.verb, self.server)) is not None:
                raise hopeless
            if self.reach.at_once and not request.sent and trouble.is_refused(error):
                raise trouble.unreachable(error, request.verb, self.server)
        return 0.0  # the next connection is not opened before its time

    def _remedy_of_refusal(self, request: Command, refusal: Refusal) -> float:
        remedy = trouble.remedy_of(refusal)
        if remedy == "none":
            raise trouble.refused(refusal, request.verb, self.server)
        request.failures += 1
        # Once at once: a script is loaded, a slot has moved. What comes again may be a circle.
        at_once = remedy in ("load", "moved", "ask") and request.failures == 1
        if at_once and self._unproven is not None and request.connection is self._unproven:
            self._proven()
        if remedy == "load":
            request.load = True
            if request.connection is not None and request.connection is self._side:
                request.detour = request.connection.where  # it is that node which does not know it
        elif remedy in ("moved", "elsewhere"):
            self._leave(request.connection)
            if remedy == "moved" and request.connection is not None:
                self.server.home = trouble.target_of(refusal, request.connection.where)
            else:
                self.server.doubt()
        elif remedy == "ask" and request.connection is not None:
            request.detour = trouble.target_of(refusal, request.connection.where)
        return 0.0 if at_once else pause(request.failures - 1)

    def _over(self, request: Command, cause: BaseException) -> StoreError:
        if isinstance(cause, TimeoutError):
            cause = self.reach.why or cause
        tell = silent if request.sent else trouble.unreachable
        return tell(cause, request.verb, self.server, request.timeout_s)

    # -- the connection

    async def _opened(self, request: Command) -> Connection:
        """A connection; callers that wait for one share the opening."""
        if self._dropped:
            raise closed(request.verb, sent=request.sent)
        if request.detour is not None:
            where, request.detour = request.detour, None  # if that server does not answer, ask the usual one again
            connection = await self._detour(where)
            request.detour = where
            return connection
        opening = self._opening
        if opening is None:
            opening = self._opening = errand(self._open(), self._loop)
            opening.add_done_callback(self._opening_ended)
        try:
            async with asyncio.timeout_at(request.deadline):
                return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and (task is None or not task.cancelling()):
                raise Lost("the store was closed", sent=False) from None
            raise

    async def _open(self) -> Connection:
        if self._unproven is not None:
            # A server that closes the connection after the greeting is no better than one that does not answer.
            self._unproven = None
            self._failed(self.reach.why or Lost("the server hung up before it answered anything", sent=False))
        await asyncio.sleep(self._not_before - self._loop.time())
        try:
            connection = await self.server.open()
        except BaseException as error:
            self.server.doubt()
            self._failed(error)
            raise
        self._connection = self._unproven = connection
        return connection

    def _failed(self, why: BaseException) -> None:
        """No connection, or none of use: the next one is made after a while."""
        self.reach.failed(why, self.server)
        self._not_before = self._loop.time() + self.reach.pause()

    def _proven(self) -> None:
        """The connection has answered."""
        self.reach.reached(self.server)
        self.reach.cut = True  # by the time another one answers
        self._unproven = None

    def _opening_ended(self, opening: asyncio.Task[Connection]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            opening.exception()  # callers that waited have it; callers that gave up do not need it

    async def _detour(self, where: Where) -> Connection:
        side = self._side
        if side is None or side.closed or side.where != where:
            if side is not None:
                side.retire()
            side = self._side = await self.server.open_at(where)
        return side

    def _leave(self, connection: Connection | None) -> None:
        """Use this connection for nothing new. Others may have gone on to a better one already."""
        if connection is not None:
            connection.retire()
            if self._connection is connection:
                self._connection = None

    def drop(self) -> None:
        """Let go of all connections, for good: who still waits is told."""
        self._dropped = True
        if self._opening is not None:
            self._opening.cancel()
        for connection in (self._connection, self._side):
            if connection is not None:
                connection.close()
        self._connection = self._side = self._opening = None


async def _follow(sending: Sending, sent: asyncio.Future[Any]) -> Any:
    """The answer to what was sent. A refusal has changed nothing."""
    sending.out += 1
    try:
        answer = await sent
    except Lost as error:
        sending.out -= not error.sent
        raise
    sending.out -= isinstance(answer, Refusal)
    return answer
