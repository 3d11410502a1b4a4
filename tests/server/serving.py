"""Serves an API on a real socket in this process, so that a test can cut connections and end the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from limpet.runtime.listening import listener_on, place_on
from limpet.server.api import Api
from limpet.server.serving import Serving


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until this is so."""
    async with asyncio.timeout(60):
        while True:
            if await true():
                return
            await asyncio.sleep(0.005)


@dataclass
class Served:
    """A server that takes connections at `url` until `stop` is set."""

    url: str
    stop: asyncio.Event
    server: Serving
    running: asyncio.Task[None]

    async def ends(self) -> None:
        """Stop, and return when the server has ended."""
        self.stop.set()
        await asyncio.wait_for(asyncio.shield(self.running), 60)

    async def has_noticed(self) -> None:
        """Return when the server knows of no connection any more."""

        async def none() -> bool:
            return not self.server.server_state.connections

        await until(none)


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[Served]:
    """The API, served on any port."""
    stop, ready = asyncio.Event(), asyncio.Event()
    with listener_on("127.0.0.1", 0) as listener:
        server = Serving(api, stop, ready.set)
        running = asyncio.ensure_future(server.run_on(listener))
        try:
            await asyncio.wait_for(ready.wait(), 60)
            yield Served(f"http://{place_on(listener)}", stop, server, running)
        finally:
            stop.set()
            await running
