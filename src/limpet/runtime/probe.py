"""Answers the probes of a worker, /healthz and /readyz, over HTTP: two questions, and no client holds anything up.

It is no web server on purpose: a worker needs no extra for its probes, and what it answers shows no job.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from limpet.core.text.place import Place
from limpet.runtime.health import Health
from limpet.runtime.listening import listener_on, place_on

WITHIN_S: Final = 5.0  # for a whole request and its answer
HEAD_BYTES: Final = 8_192  # of a request; probes send less than one
MOST: Final = 64  # connections at once; those beyond are closed
PROBLEM: Final = "application/problem+json"


class ProbeServer:
    """Listens from its making on; answers while `answering` lasts."""

    def __init__(self, place: Place, health: Callable[[], Health]) -> None:
        self._listener: socket.socket = listener_on(place.host, place.port, option="--probe-port")
        self._health = health
        self._open = 0

    @property
    def place(self) -> Place:
        """Where it listens."""
        return place_on(self._listener)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Answer until the end of the block."""
        server = await asyncio.start_server(self._serve, sock=self._listener, limit=HEAD_BYTES)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST:
                async with asyncio.timeout(WITHIN_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(answer(head, self._health()))
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that is slow, gone, or no client of ours
        finally:
            self._open -= 1
            writer.transport.abort()


def answer(head: bytes, health: Health) -> bytes:
    """The whole answer to one request."""
    method, path = _asked(head)
    path = path.partition("?")[0]
    wrong = {"/healthz": health.unwell, "/readyz": health.unready or health.unwell}.get(path)
    if wrong is None:
        return _response(HTTPStatus.NOT_FOUND, "a worker answers /healthz and /readyz", path, method)
    if method not in ("GET", "HEAD"):
        return _response(HTTPStatus.METHOD_NOT_ALLOWED, "ask with GET", path, method)
    return _response(HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK, wrong, path, method)


def _asked(head: bytes) -> tuple[str, str]:
    """The method and the path of a request; empty where it is none."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1]) if len(words) == 3 and words[2].startswith("HTTP/1.") else ("", "")


def _response(status: HTTPStatus, wrong: str, path: str, method: str) -> bytes:
    kind, document = "application/json", {"status": "ok"} if not wrong else {}
    if wrong:
        kind = PROBLEM
        document = {"type": "about:blank", "title": status.phrase, "detail": wrong, "instance": path}
    body = msgspec.json.encode({**document, "status": status.value} if wrong else document)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
        *(["allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


@asynccontextmanager
async def probed(place: Place | None, health: Callable[[], Health]) -> AsyncIterator[Place | None]:
    """Answer probes in the block, where they are wanted; says where."""
    if place is None:
        yield None
        return
    server = ProbeServer(place, health)
    async with server.answering():
        yield server.place
