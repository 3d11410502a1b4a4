"""A server of a test's own that says what it likes to whoever knocks, and leaves nobody behind when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

Greet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ARRIVAL_TURNS: Final = 5  # of the loop, from the accepted connection to the task that greets it


@asynccontextmanager
async def door(greet: Greet, port: int = 0) -> AsyncIterator[int]:
    """Its port. Connections end when `greet` does, or with the door.

    A transport that is still open when its loop is closed becomes a ResourceWarning in whichever test collects it.
    """
    guests: dict[asyncio.Task[None], asyncio.WriteTransport] = {}

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        guests[task] = writer.transport
        with suppress(OSError):
            await greet(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(welcome, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(ARRIVAL_TURNS):
            await asyncio.sleep(0)
        for transport in guests.values():
            transport.abort()
        await asyncio.gather(*guests)
