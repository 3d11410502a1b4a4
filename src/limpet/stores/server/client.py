"""Gives each event loop a client of its own, which asks the server until there is an answer or the time is over."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from limpet.core.errors import LimpetError
from limpet.stores.sending import refusals_at_once
from limpet.stores.server import trouble
from limpet.stores.server.trouble import Lost, Silent

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5  # work resumes within two seconds of the server's return

Intercept = Callable[[str, str], None]


def pause(failures: int) -> float:
    """How long to wait after this number of failures in a row: longer each time, with jitter."""
    longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(failures, 10)))
    return longest * random.uniform(0.5, 1.0)


class Request:
    """One verb under way, and what has become of it so far."""

    __slots__ = ("again", "connection", "deadline", "failures", "sent", "timeout_s", "verb")

    def __init__(self, verb: str, timeout_s: float, deadline: float, *, again: bool) -> None:
        self.verb = verb
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.again = again
        self.sent = False  # it may have happened: its answer got lost
        self.failures = 0
        self.connection: Any = None  # the one that was used last


class Reach:
    """Whether one event loop can reach the server. The log says so when that changes."""

    def __init__(self, logger: logging.Logger) -> None:
        self.failures = 0
        self.reconnects = 0
        self.why: BaseException | None = None  # it cannot be reached
        self.cut = False  # there was a connection, and it was lost
        self.at_once = refusals_at_once()  # until the first connection
        self._logger = logger

    def failed(self, why: BaseException, where: object) -> None:
        """No connection, or none of use."""
        self.why = why
        if not self.failures and not isinstance(why, asyncio.CancelledError):
            self._logger.warning("cannot reach %s: %s", where, trouble.said(why))

    def pause(self) -> float:
        """How long to wait before the next connection is tried."""
        self.failures += 1
        return pause(self.failures - 1)

    def reached(self, where: object) -> None:
        """There is a connection of use: whatever went wrong before is over."""
        if self.failures or self.cut:
            self.reconnects += self.cut
            # An idle connection that was cut is no trouble.
            level = logging.WARNING if self.failures else logging.INFO
            self._logger.log(level, "connected to %s%s", where, " again" if self.cut else "")
        self.failures, self.why, self.cut, self.at_once = 0, None, False, False

    def said(self) -> str:
        """Why it cannot be reached, in words; empty when it can."""
        return "" if self.why is None else trouble.said(self.why)


R = TypeVar("R", bound=Request)


class ServerClient(Generic[R]):
    """Decides what becomes of a call without an answer: ask again after a pause, or raise."""

    def __init__(self, where: object) -> None:
        self.where = where  # the server, for error messages
        self.intercept: Intercept | None = None  # crash-point tests: (verb, "before" | "after") may raise
        self._loop = asyncio.get_running_loop()

    def _remedy(self, request: R, error: BaseException) -> float:
        """Make it worth asking again after this number of seconds, or raise."""
        raise NotImplementedError

    def _over(self, request: R, cause: BaseException) -> LimpetError:
        """The error for a call whose time is over."""
        raise NotImplementedError

    async def _recover(self, request: R, error: BaseException) -> None:
        """Make it worth asking again, or raise."""
        if isinstance(error, Silent):
            request.sent = True
            raise self._over(request, error)
        if isinstance(error, Lost):
            request.sent = request.sent or error.sent
            if request.sent and not request.again:
                raise trouble.unsure(error, request.verb, self.where)
        pause_s = self._remedy(request, error)
        if self._loop.time() + pause_s >= request.deadline:
            raise self._over(request, error)
        if pause_s:
            await asyncio.sleep(pause_s)


class Held(Protocol):
    """What a loop can have of its own."""

    def drop(self) -> None:
        """Let go of connections. Called in its loop."""


T = TypeVar("T", bound=Held)


class PerLoop(Generic[T]):
    """One of something for every event loop, made when that loop first asks, dropped when the loop shuts down.

    What a parent made is left alone after a fork: closing a socket in the child would take it from the loop of the
    parent, and TLS would say goodbye in its name.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}
        self._pid = os.getpid()
        self._inherited: list[object] = []  # of the parent: kept, so that nothing of it is collected and closed

    def here(self) -> T:
        """This loop's own."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None or self._pid != os.getpid():
            return self._begin(loop)
        return held[0]

    def _begin(self, loop: asyncio.AbstractEventLoop) -> T:
        if self._pid != os.getpid():
            self._inherited.append(self._held)
            self._held, self._pid = {}, os.getpid()
        for other in list(self._held):
            if other.is_closed():
                self._held.pop(other, None)
        made = self._make()
        ending = _at_the_end_of_the_loop(made.drop)
        _start(ending)
        self._held[loop] = (made, ending)
        return made

    async def close(self) -> None:
        """Drop the client of every loop. Idempotent; the next call gets a new one."""
        if self._pid != os.getpid():
            return
        held, self._held = self._held, {}
        here = asyncio.get_running_loop()
        for loop, (made, ending) in held.items():
            if loop is here:
                await ending.aclose()
            elif not loop.is_closed():
                loop.call_soon_threadsafe(made.drop)
        await asyncio.sleep(0)  # the loop closes sockets one turn later


async def _at_the_end_of_the_loop(drop: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Sleeps in the loop's list of generators, which it closes before it is closed itself (as asyncio.run does)."""
    try:
        yield
    finally:
        drop()


def _start(ending: AsyncGenerator[None, None]) -> None:
    """Run it up to its yield: from there on the loop knows it."""
    try:
        ending.asend(None).send(None)
    except StopIteration:
        return
