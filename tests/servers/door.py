"""A server of a test's own that says what it likes to whoever knocks, and leaves nobody behind when it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Greet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def door(greet: Greet, port: int = 0) -> AsyncIterator[int]:
    """Its port. Connections end when `greet` does, or with the door.

    A transport that is still open when its loop is closed becomes a ResourceWarning in whichever test collects it.
    asyncio's own server leaves one open when it is closed in the turn in which it has accepted a connection.
    """
    guests: list[asyncio.Task[None]] = []
    transports: list[asyncio.WriteTransport] = []
    shut = False

    async def welcome(connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)
        transports.append(writer.transport)
        if shut:
            writer.transport.abort()
        with suppress(OSError):
            await greet(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def accept() -> None:
        with suppress(OSError):  # the knock was taken back
            connection, _ = listening.accept()
            connection.setblocking(False)
            guests.append(loop.create_task(welcome(connection)))

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", port), backlog=100) as listening:
        listening.setblocking(False)
        loop.add_reader(listening, accept)
        try:
            yield listening.getsockname()[1]
        finally:
            loop.remove_reader(listening)
            shut = True
            for transport in transports:
                transport.abort()
            await asyncio.gather(*guests)
