"""Redis alone: LPUSH in one process, BLPOP in the other, by hiredis on the event loop."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast
from urllib.parse import urlsplit

from hiredis import Reader, pack_command

from bench.floor.mechanism import Told
from bench.meter import greeting

AWAITED: Final = "floor:awaited"
STORED: Final = "floor:stored"  # no process waits for this one


class OnRedis:
    """A connection and the lists behind it."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        where = urlsplit(self._url)
        loop = asyncio.get_running_loop()
        _, self._line = await loop.create_connection(
            lambda: _Line(loop), where.hostname or "127.0.0.1", where.port or 6379
        )
        for command in greeting(where):
            await self._line.ask(command)

    async def store(self, stamp: bytes) -> None:
        await self._line.ask(("LPUSH", STORED, stamp))

    async def send(self, stamp: bytes) -> None:
        await self._line.ask(("LPUSH", AWAITED, stamp))

    async def listen(self, told: Told) -> None:
        def answered(answer: asyncio.Future[Any]) -> None:
            told(answer.result()[1])
            wait()

        def wait() -> None:
            self._line.ask(("BLPOP", AWAITED, "0")).add_done_callback(answered)

        wait()


class _Line(asyncio.Protocol):
    """Asks one thing at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader = Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not subclass it

    def ask(self, command: tuple[str | bytes, ...]) -> asyncio.Future[Any]:
        self._answer: asyncio.Future[Any] = self._loop.create_future()
        self._transport.write(pack_command(command))  # type: ignore[arg-type]  # its stub knows tuples of one alone
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if (answer := self._reader.gets()) is False:
            return
        if isinstance(answer, Exception):
            self._answer.set_exception(answer)
        else:
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))
