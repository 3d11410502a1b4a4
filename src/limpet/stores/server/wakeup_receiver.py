"""Keeps a connection on which wake-ups arrive, for one event loop: opened again after a pause whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import Generic, Protocol, TypeVar

from limpet.stores.errand import errand
from limpet.stores.server.client import pause
from limpet.stores.server.trouble import Lost, said
from limpet.stores.waiters import Waiters


class Closes(Protocol):
    """A connection."""

    def close(self) -> None:
        """End it. Idempotent."""


C = TypeVar("C", bound=Closes)


class Receiver(Generic[C]):
    """Listens in one loop, by callbacks: a loop that ends has no task of ours to wait for.

    Messages that were lost with a connection are made up for: once it is back, all sleepers wake.
    """

    def __init__(self, waiters: Waiters, logger: logging.Logger) -> None:
        self._waiters = waiters
        self._logger = logger
        self._loop = asyncio.get_running_loop()
        self._connection: C | None = None
        self._opening: asyncio.Task[C | None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._running = False
        self._failures = 0
        self._missed = False  # messages may have been lost

    async def _connect(self) -> C | None:
        """A connection on which messages arrive; None when there can be none, ever."""
        raise NotImplementedError

    def _connected(self, connection: C | None) -> None:
        """Begin to receive."""
        raise NotImplementedError

    def _again(self, error: BaseException) -> None:
        """Connect again after a while, however often that takes: until then sleepers wake by their own clocks."""
        raise NotImplementedError

    def listen(self) -> None:
        """Begin, unless it has."""
        if not self._running:
            self._running = True
            self._open()

    def drop(self) -> None:
        """Stop, and let go of the connection."""
        self._running = False
        for pending in (self._later, self._opening):
            if pending is not None:
                pending.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._later = self._opening = None

    def _open(self) -> None:
        self._later = None
        self._opening = errand(self._connect(), self._loop)
        self._opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Task[C | None]) -> None:
        if opening.cancelled() and self._opening is not opening:
            return
        self._opening = None
        # Code that cancels all tasks of a loop, in a handler for example, does not mean this one.
        error = Lost("it was cancelled", sent=False) if opening.cancelled() else opening.exception()
        if error is not None:
            self._again(error)
            return
        connection = opening.result()
        if connection is not None and not self._running:
            connection.close()
        else:
            self._connected(connection)

    def _unexpected(self, error: BaseException) -> None:
        """Tell the loop of an error that no server causes."""
        self._loop.call_exception_handler({"message": "the receiver of wake-ups failed", "exception": error})

    def _interrupted(self, error: BaseException, where: object, level: int) -> None:
        """The first of several failures in a row is told."""
        if not self._failures:
            self._logger.log(level, "wake-ups from %s are interrupted: %s", where, said(error))

    def _open_later(self, pause_s: float | None = None) -> None:
        """Open a connection after this pause, by default a longer one each time."""
        self._later = self._loop.call_later(pause(self._failures) if pause_s is None else pause_s, self._open)
        self._failures += 1
