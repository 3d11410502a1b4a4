"""Stands between a client and a server of the tests, and can be cut: then nothing passes, and nobody is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.servers.door import door


class Proxy:
    """Passes bytes on to a port of this machine. What comes while it is cut is late, as in a network."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._open = asyncio.Event()
        self._open.set()
        self.port = 0

    def cut(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._open.wait()
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            await asyncio.gather(self._pass(reader, inner_writer), self._pass(inner_reader, writer))
        finally:
            inner_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while passing := await reader.read(65_536):
                await self._open.wait()
                writer.write(passing)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def proxy(to: int) -> AsyncIterator[Proxy]:
    """A proxy before that port."""
    made = Proxy(to)
    async with door(made.greet) as made.port:
        try:
            yield made
        finally:
            made.heal()
