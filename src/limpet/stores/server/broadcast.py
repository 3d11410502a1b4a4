"""Keeps one subscription to live events: a connection of its own, opened again after a pause whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from limpet.stores.base import Hear
from limpet.stores.errand import errand
from limpet.stores.server.client import pause
from limpet.stores.server.trouble import said

PING_S: Final = 15.0  # how often a silent connection is felt for


class Line(Protocol):
    """A connection on which messages arrive. `ended` is set when it has ended, however that came."""

    ended: asyncio.Event

    async def ping(self) -> None:
        """Return when the server has answered; else raise."""

    def close(self) -> None:
        """End it. Idempotent."""


class Subscription:
    """Tells `hear` what arrives, from `begin` to `close`."""

    def __init__(
        self, connect: Callable[[], Awaitable[Line]], hear: Hear, where: object, logger: logging.Logger
    ) -> None:
        self._connect = connect
        self._hear = hear
        self._where = where
        self._logger = logger
        self._line: Line | None = None
        self._living: asyncio.Task[None] | None = None

    async def begin(self, timeout_s: float) -> None:
        """Return when it listens. Raises what the first connection raises."""
        async with asyncio.timeout(timeout_s):
            line = self._line = await self._connect()
        self._living = errand(self._live(line), asyncio.get_running_loop(), name="limpet-subscription")

    def close(self) -> None:
        """Hear no more. Idempotent."""
        living, line = self._living, self._line
        self._living = self._line = None
        if living is not None:
            living.cancel()
        if line is not None:
            line.close()

    async def _live(self, line: Line) -> None:
        while True:
            try:
                await self._until_lost(line)
            finally:
                line.close()
            line = self._line = await self._reconnected()
            self._hear(None)

    async def _until_lost(self, line: Line) -> None:
        while not line.ended.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await line.ended.wait()
            except TimeoutError:
                with suppress(Exception):  # whatever it is, the line is of no use
                    async with asyncio.timeout(PING_S):
                        await line.ping()
                    continue
                return

    async def _reconnected(self) -> Line:
        """A new connection, however long that takes."""
        failures = 0
        while True:
            await asyncio.sleep(pause(failures))
            try:
                return await self._connect()
            except Exception as error:  # of any driver: a server that is away may refuse in many ways
                if not failures:
                    self._logger.info("live events from %s are interrupted: %s", self._where, said(error))
                failures += 1
