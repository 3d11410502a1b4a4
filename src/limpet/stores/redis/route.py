"""Carries a verb to the server and its answer back, through whatever happens in between, until its time is over."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from limpet.core.errors import StoreError
from limpet.stores.redis import trouble
from limpet.stores.redis.line import Line, Lost, Refusal, Silent, Word
from limpet.stores.redis.scripts import Script
from limpet.stores.redis.server import TROUBLE, Server
from limpet.stores.redis.url import RedisUrl, Where
from limpet.stores.sending import Sending, current_sending, refusals_at_once

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5  # work resumes within two seconds of the server's return

Intercept = Callable[[str, str], None]

logger = logging.getLogger("limpet.stores.redis")


class Ask:
    """One verb under way, and what has become of it so far."""

    __slots__ = (
        "again",
        "command",
        "deadline",
        "detour",
        "failures",
        "line",
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
        self.line: Line | None = None  # the one that was used last
        self.script: Script | None = None
        self.load = False  # the server does not know the script
        self.detour: Where | None = None  # the node that has the keys of a slot on the move
        self.sending: Sending | None = None  # told how far it has come, when the caller wants to know


class Route:
    """The way from one event loop to the server: one connection, made when it is needed and made again when lost."""

    def __init__(self, url: RedisUrl, tag: str) -> None:
        self.server = Server(url, tag)
        self.reconnects = 0
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._loop = asyncio.get_running_loop()
        self._timeout_s = url.timeout_s
        self._at_once = refusals_at_once()  # until the first connection
        self._line: Line | None = None
        self._opening: asyncio.Task[Line] | None = None
        self._side: Line | None = None  # to the node that a slot is moving to
        self._not_before = 0.0
        self._failures = 0
        self._why: BaseException | None = None  # it cannot be reached
        self._unproven: Line | None = None  # it is open, and has answered nothing yet
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
        ask = Ask(verb, command, timeout_s, self._loop.time() + timeout_s, again=again)
        ask.script = script
        if (sending := current_sending()) is not None:
            sending.begin(self.server.url.shown, self._said)
            ask.sending = sending
        while True:
            try:
                answer = await self._attempt(ask)
            except TROUBLE as error:
                await self._mend(ask, error)
                continue
            if isinstance(answer, Refusal):
                await self._mend(ask, answer)
                continue
            if self._unproven is not None and ask.line is self._unproven:
                self._proven()
            if self.intercept is not None:
                self.intercept(verb, "after")
            return answer

    async def _attempt(self, ask: Ask) -> Any:
        line = self._line
        if line is None or line.closed or ask.detour is not None:
            line = await self._opened(ask)
        ask.line = line
        loading = asking = None
        if ask.load and ask.script is not None:
            ask.load = False
            loading = line.send(("SCRIPT", "LOAD", ask.script.text), ask.deadline)
        if ask.detour is not None:
            ask.detour = None
            asking = line.send(("ASKING",), ask.deadline)
        sent = line.send(ask.command, ask.deadline)
        answer = await (sent if ask.sending is None else _follow(ask.sending, sent))
        for before in (loading, asking):
            if before is not None and isinstance(refusal := await before, Refusal):
                return refusal
        return answer

    # -- what went wrong

    async def _mend(self, ask: Ask, error: BaseException) -> None:
        """Make it worth asking again, or raise."""
        if self._unproven is not None and ask.line is self._unproven:
            self._why = error
        if isinstance(error, Refusal):
            await self._mend_refusal(ask, error)
        elif isinstance(error, Silent):
            ask.sent = True
            raise self._over(ask, error)
        elif isinstance(error, Lost):
            if error.sent:
                ask.sent = True
                if not ask.again:
                    raise trouble.unsure(error, ask.verb, self.server)
        elif (hopeless := trouble.hopeless(error, ask.verb, self.server)) is not None:
            raise hopeless
        elif self._at_once and not ask.sent and trouble.is_refused(error):
            raise trouble.unreachable(error, ask.verb, self.server)
        if self._loop.time() >= ask.deadline:
            raise self._over(ask, error)

    async def _mend_refusal(self, ask: Ask, refusal: Refusal) -> None:
        remedy = trouble.remedy_of(refusal)
        if remedy == "none":
            raise trouble.refused(refusal, ask.verb, self.server)
        ask.failures += 1
        # Once at once: a script is loaded, a slot has moved. What comes again may be a circle.
        at_once = remedy in ("load", "moved", "ask") and ask.failures == 1
        if at_once and self._unproven is not None and ask.line is self._unproven:
            self._proven()
        if remedy == "load":
            ask.load = True
            if ask.line is not None and ask.line is self._side:
                ask.detour = ask.line.where  # it is that node which does not know it
        elif remedy in ("moved", "elsewhere"):
            self._leave(ask.line)
            if remedy == "moved" and ask.line is not None:
                self.server.home = trouble.target_of(refusal, ask.line.where)
            else:
                self.server.doubt()
        elif remedy == "ask" and ask.line is not None:
            ask.detour = trouble.target_of(refusal, ask.line.where)
        if not at_once:
            await self._pause(ask, refusal)

    async def _pause(self, ask: Ask, refusal: Refusal) -> None:
        pause_s = pause(ask.failures - 1)
        if self._loop.time() + pause_s >= ask.deadline:
            raise self._over(ask, refusal)
        await asyncio.sleep(pause_s)

    def _over(self, ask: Ask, cause: BaseException) -> StoreError:
        """Its time is over."""
        if isinstance(cause, TimeoutError):
            cause = self._why or cause
        tell = trouble.silent if ask.sent else trouble.unreachable
        return tell(cause, ask.verb, self.server, ask.timeout_s)

    def _said(self) -> str:
        return "" if self._why is None else trouble.said(self._why)

    # -- the connection

    async def _opened(self, ask: Ask) -> Line:
        """A connection, opened together with everybody who waits for one."""
        if self._dropped:
            raise trouble.closed(ask.verb, sent=ask.sent)
        if ask.detour is not None:
            where, ask.detour = ask.detour, None  # if nobody answers there, ask at home again
            line = await self._detour(where)
            ask.detour = where
            return line
        opening = self._opening
        if opening is None:
            opening = self._opening = self._loop.create_task(self._open())
            opening.add_done_callback(self._opening_ended)
        try:
            async with asyncio.timeout_at(ask.deadline):
                return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and (task is None or not task.cancelling()):
                raise Lost("the store was closed", sent=False) from None
            raise

    async def _open(self) -> Line:
        if self._unproven is not None:
            # Whoever hangs up after the greeting is no better than one who does not answer the door.
            self._unproven = None
            self._failed(self._why or Lost("the server hung up before it answered anything", sent=False))
        await asyncio.sleep(self._not_before - self._loop.time())
        try:
            line = await self.server.open()
        except BaseException as error:
            self.server.doubt()
            self._failed(error)
            raise
        self._line = self._unproven = line
        return line

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

    def _opening_ended(self, opening: asyncio.Task[Line]) -> None:
        if self._opening is opening:
            self._opening = None
        if not opening.cancelled():
            opening.exception()  # those who waited have it; who gave up does not want it

    async def _detour(self, where: Where) -> Line:
        side = self._side
        if side is None or side.closed or side.where != where:
            if side is not None:
                side.retire()
            side = self._side = await self.server.open_at(where)
        return side

    def _leave(self, line: Line | None) -> None:
        """Use this connection for nothing new. Others may have gone on to a better one already."""
        if line is not None:
            line.retire()
            if self._line is line:
                self._line = None

    def drop(self) -> None:
        """Let go of all connections, for good: who still waits is told."""
        self._dropped = True
        if self._opening is not None:
            self._opening.cancel()
        for line in (self._line, self._side):
            if line is not None:
                line.close()
        self._line = self._side = self._opening = None


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
