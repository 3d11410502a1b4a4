"""Answers short questions over HTTP, each on a connection of its own, so that no client holds anything up.

It is no web server on purpose: a worker needs no extra for its probes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import msgspec

from limpet.core.text.place import Place
from limpet.runtime.listening import listener_on, place_on

WITHIN_S: Final = 5.0  # for a whole request and its answer
HEAD_BYTES: Final = 8_192  # of a request; probes send less than one
MOST: Final = 64  # connections at once; those beyond are closed
PROBLEM: Final = "application/problem+json"


class SmallServer:
    """Listens from its making on; answers while `answering` lasts. `option` is the flag that chooses the place."""

    def __init__(
        self, place: Place, answer: Callable[[bytes], Awaitable[bytes]], *, option: str, within_s: float = WITHIN_S
    ) -> None:
        self._listener: socket.socket = listener_on(place.host, place.port, option=option)
        self._answer = answer
        self._within_s = within_s
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
                async with asyncio.timeout(self._within_s):
                    writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                    writer.close()
                    await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that is slow, gone, or no client of ours
        finally:
            self._open -= 1
            writer.transport.abort()


def asked(head: bytes) -> tuple[str, str]:
    """The method and the path of a request; empty where it is none."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    is_one = len(words) == 3 and words[2].startswith("HTTP/1.")
    return (words[0], words[1].partition("?")[0]) if is_one else ("", "")


def header(head: bytes, name: str) -> str:
    """What a header of a request says; all of them, where it stands twice."""
    lines = [line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:]]
    return ", ".join(said.strip() for key, _, said in lines if key.strip().lower() == name)


def response(status: HTTPStatus, body: bytes, kind: str, method: str) -> bytes:
    """A whole answer."""
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        "cache-control: no-store",
        "connection: close",
        *(["allow: GET, HEAD"] if status is HTTPStatus.METHOD_NOT_ALLOWED else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


def problem(status: HTTPStatus, wrong: str, path: str, method: str) -> bytes:
    """An answer that says what is wrong."""
    document = {"type": "about:blank", "title": status.phrase, "detail": wrong, "instance": path}
    return response(status, msgspec.json.encode({**document, "status": status.value}), PROBLEM, method)
