"""Asks the HTTP API as clients do: inside this process for speed, or over a real connection to a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import h11
import msgspec
from starlette.types import ASGIApp, Message, Scope

from limpet.server.problem import MEDIA_TYPE


@dataclass(frozen=True)
class Answer:
    """What one request was told."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.raw)

    @property
    def problem(self) -> str:
        """The code of a problem document, whose status is that of the answer; empty where it is none."""
        if self.headers.get("content-type") != MEDIA_TYPE:
            return ""
        found = self.json
        assert found["status"] == self.status
        assert found["type"] == f"urn:limpet:error:{found['code']}"
        assert found["title"]
        assert found["detail"]
        assert found["instance"].startswith("/")
        return str(found["code"])


@dataclass
class Client:
    """Requests to an ASGI application in this process, from the address that it names."""

    app: ASGIApp
    token: str | None = None
    address: str = "127.0.0.1"
    headers: dict[str, str] = field(default_factory=lambda: {"host": "127.0.0.1:8787"})

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("POST", path, body, headers=headers)

    async def ask(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, raw: bytes = b""
    ) -> Answer:
        """One request; header names may be written with an underscore. `raw` goes as it is."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in (headers or {}).items()}}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        payload = raw if body is None else msgspec.json.encode(body)
        if body is not None:
            sent.setdefault("content-type", "application/json")
        if payload:
            sent.setdefault("content-length", str(len(payload)))
        return await self.send(method, path, sent, [payload])

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        chunks: list[bytes],
        *,
        between: asyncio.Event | None = None,
    ) -> Answer:
        """One request whose body comes in these chunks; those after the first when `between` is set."""
        messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
            for number, chunk in enumerate(chunks, 1)
        ]
        said: list[Message] = []
        stays = asyncio.Event()

        async def receive() -> Message:
            if messages:
                if between is not None and len(messages) < len(chunks):
                    await between.wait()
                return messages.pop(0)
            await stays.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            said.append(message)

        await self.app(self._scope(method, path, headers), receive, send)
        start, *rest = said
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, b"".join(message.get("body", b"") for message in rest))

    def _scope(self, method: str, path: str, headers: Mapping[str, str]) -> Scope:
        plain, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(plain),
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": (self.address, 50_000),
            "server": ("127.0.0.1", 8787),
        }


class Wire:
    """One connection to a real server: `async with Wire(url) as wire`."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._place = (parts.hostname or "", parts.port or 80)
        self._h11 = h11.Connection(h11.CLIENT)

    async def __aenter__(self) -> Wire:
        self._reader, self.writer = await asyncio.open_connection(*self._place)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Send a request, and wait for nothing."""
        named = {"host": f"{self._place[0]}:{self._place[1]}", "content-length": str(len(body)), **(headers or {})}
        request = h11.Request(method=method, target=path, headers=list(named.items()))
        sent = (self._h11.send(request) or b"") + (self._h11.send(h11.Data(data=body)) or b"")
        self.writer.write(sent + (self._h11.send(h11.EndOfMessage()) or b""))
        await self.writer.drain()

    async def answer(self) -> Answer:
        """Wait for the whole answer."""
        status, headers, body = 0, {}, b""
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                self._h11.receive_data(await self._reader.read(65_536))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Answer(status, headers, body)
            else:
                raise ConnectionError(f"the server said {event!r}")

    def cut(self) -> None:
        """Go without a word."""
        self.writer.transport.abort()
