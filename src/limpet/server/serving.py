"""Runs the HTTP API under uvicorn: on a socket of ours, with signals of ours, and an end that nothing holds up."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from limpet.server.api import Api

GRACE_S: Final = 10  # a backstop: streams and long polls are ended at once, and other answers take less
HEAD_S: Final = 10.0  # between looks whether a connection has brought a request; the second one closes it


class Connection(H11Protocol):
    """One connection. It is closed when the head of a request does not come: uvicorn would wait for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_head()

    def _await_head(self) -> None:
        self._looking = self.loop.call_later(HEAD_S, self._look, self.cycle)

    def _look(self, last: RequestResponseCycle | None) -> None:
        if self.cycle is last and (last is None or last.response_complete):
            self.transport.close()
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._looking.cancel()
        super().connection_lost(exc)


class Serving(uvicorn.Server):
    """One server; `ready` is called when it takes connections, and the event `stop` ends it."""

    def __init__(self, api: Api, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # what it says of its own life, we say
        super().__init__(
            uvicorn.Config(
                api,
                http=Connection,
                log_config=None,
                access_log=False,
                lifespan="on",
                ws="none",
                proxy_headers=False,  # otherwise a header decides which address a request is from
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._api = api
        self._stop = stop
        self._ready = ready

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until `stop` is set."""
        watching = asyncio.ensure_future(self._watch())
        try:
            await self.serve(sockets=[listener])
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        await self._stop.wait()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._api.end_streams()  # uvicorn waits for open answers before it tells the application
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are obeyed around the server, so that the command ends with an exit code of ours."""
        yield
