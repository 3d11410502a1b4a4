"""Runs the HTTP API under uvicorn: on a socket of ours, with signals of ours, and an end that nothing holds up."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn

from limpet.core.errors import UsageError
from limpet.server.api import Api

GRACE_S: Final = 10  # a backstop: streams and long polls are ended at once, and other answers take less
BACKLOG: Final = 2_048


class Serving(uvicorn.Server):
    """One server; `ready` is called when it takes connections, and the event `stop` ends it."""

    def __init__(self, api: Api, stop: asyncio.Event, ready: Callable[[], None] = lambda: None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # what it says of its own life, we say
        super().__init__(
            uvicorn.Config(
                api,
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


def listener_on(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any."""
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        fix = "another program has this port: choose one with --port" if taken else "give an address of this machine"
        why = (error.strerror or str(error)).partition(" (")[0]
        raise UsageError(f"cannot listen on {shown(host, port)}: {why}", fix=fix) from error
    # Connections inherit it. Without it the kernel keeps a body back until the client has acknowledged the head: 40 ms.
    # The event loop does it only for sockets that name their protocol, and these do not.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def shown(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
