"""Carries a verb to the server and its answer back, through whatever happens in between, until its time is over."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from limpet.core.errors import StoreError
from limpet.stores.redis import trouble
from limpet.stores.redis.connection import Connection, Lost, Refusal, Silent, Word
from limpet.stores.redis.scripts import Script
from limpet.stores.redis.server import TROUBLE, Server
from limpet.stores.redis.url import RedisUrl, Where
from limpet.stores.sending import Sending, current_sending, refusals_at_once

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5  # work resumes within two seconds of the server's return

Intercept = Callable[[str, str], None]

logger = logging.getLogger("limpet.stores.redis")


class Request:
    """One verb under way, and what has become of it so far."""

    __slots__ = (
        "again",
        "command",
        "connection",
        "deadline",
        "detour",
        "failures",
        "load",
        "script",
        "sending",
        "sent",
        "timeout_s",
        "verb",
    )

    def __init__(self, verb: str, command: tuple[Word, ...], timeout_s: float, deadline: float, *, again: bool) -> None:
        self.verb = verb
        self.command = command
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.again = again
        self.sent = False  # it may have happened: its answer got lost
        self.failures = 0
        self.connection: Connection | None = None  # the one that was used last
        self.script: Script | None = None
        self.load = False  # the server does not know the script
        self.detour: Where | None = None  # the node that has the keys of a slot on the move
        self.sending: Sending | None = None  # told how far it has come, when the caller wants to know


class Client:
    """The way from one event loop to the server: one connection, made when it is needed and made again when lost."""

    def __init__(self, url: RedisUrl, tag: str) -> None:
        self.server = Server(url, tag)
        self.reconnects = 0
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._loop = asyncio.get_running_loop()
        self._timeout_s = url.timeout_s
        self._at_once = refusals_at_once()  # until the first connection
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._side: Connection | None = None  # to the node that a slot is moving to
        self._not_before = 0.0
        self._failures = 0
        self._why: BaseException | None = None  # it cannot be reached
        self._unproven: Connection | None = None  # it is open, and has answered nothing yet
        self._cut = False  # there was a connection, and it was lost
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
        self, verb: str, command: tuple[Word, ...], script: Script | None, deadline_s: float | None, again: bool
    ) -> Any:
        if self.intercept is not None:
            self.intercept(verb, "before")
        timeout_s = self._timeout_s if deadline_s is None else deadline_s
        request = Request(verb, command, timeout_s, self._loop.time() + timeout_s, again=again)
        request.script = script
        if (sending := current_sending()) is not None:
            sending.begin(self.server.url.shown, self._said)
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

    async def _attempt(self, request: Request) -> Any:
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
        sent = connection.send(request.command, request.deadline)
        answer = await (sent if request.sending is None else _follow(request.sending, sent))
        for before in (loading, asking):
            if before is not None and isinstance(refusal := await before, Refusal):
                return refusal
        return answer

    # -- what went wrong

    async def _recover(self, request: Request, error: BaseException) -> None:
        """Make it worth asking again, or raise."""
        if self._unproven is not None and request.connection is self._unproven:
            self._why = error
        if isinstance(error, Refusal):
            await self._recover_from_refusal(request, error)
        elif isinstance(error, Silent):
            request.sent = True
            raise self._over(request, error)
        elif isinstance(error, Lost):
            if error.sent:
                request.sent = True
                if not request.again:
                    raise trouble.unsure(error, request.verb, self.server)
        elif (hopeless := trouble.hopeless(error, request.verb, self.server)) is not None:
            raise hopeless
        elif self._at_once and not request.sent and trouble.is_refused(error):
            raise trouble.unreachable(error, request.verb, self.server)
        if self._loop.time() >= request.deadline:
            raise self._over(request, error)

    async def _recover_from_refusal(self, request: Request, refusal: Refusal) -> None:
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
        if not at_once:
            await self._pause(request, refusal)

    async def _pause(self, request: Request, refusal: Refusal) -> None:
        pause_s = pause(request.failures - 1)
        if self._loop.time() + pause_s >= request.deadline:
            raise self._over(request, refusal)
        await asyncio.sleep(pause_s)

    def _over(self, request: Request, cause: BaseException) -> StoreError:
        """Its time is over."""
        if isinstance(cause, TimeoutError):
            cause = self._why or cause
        tell = trouble.silent if request.sent else trouble.unreachable
        return tell(cause, request.verb, self.server, request.timeout_s)

    def _said(self) -> str:
        return "" if self._why is None else trouble.said(self._why)

    # -- the connection

    async def _opened(self, request: Request) -> Connection:
        """A connection, opened together with everybody who waits for one."""
        if self._dropped:
            raise trouble.closed(request.verb, sent=request.sent)
        if request.detour is not None:
            where, request.detour = request.detour, None  # if nobody answers there, ask at home again
            connection = await self._detour(where)
            request.detour = where
            return connection
        opening = self._opening
        if opening is None:
            opening = self._opening = self._loop.create_task(self._open())
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
            # Whoever hangs up after the greeting is no better than one who does not answer the door.
            self._unproven = None
            self._failed(self._why or Lost("the server hung up before it answered anything", sent=False))
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
        self._not_before = self._loop.time() + pause(self._failures)
        self._failures += 1
        self._why = why
        if self._failures == 1 and not isinstance(why, asyncio.CancelledError):
            logger.warning("cannot reach %s: %s", self.server, trouble.said(why))

    def _proven(self) -> None:
        """The connection has answered: whatever went wrong before is over."""
        if self._failures or self._cut:
            self.reconnects += self._cut
            # An idle connection that somebody cut is no trouble.
            level = logging.WARNING if self._failures else logging.INFO
            logger.log(level, "connected to %s%s", self.server, " again" if self._cut else "")
        self._failures, self._cut, self._why, self._unproven = 0, True, None, None
        self._at_once = False

    def _opening_ended(self, opening: asyncio.Task[Connection]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            opening.exception()  # those who waited have it; who gave up does not want it

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


def pause(failures: int) -> float:
    """How long to wait after so many failures in a row: longer each time, and never all at the same moment."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures, 10)))
    return longest * random.uniform(0.5, 1.0)
