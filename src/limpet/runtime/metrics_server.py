"""Answers /metrics of a worker over HTTP: one port for all its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from limpet.core.text.place import Place
from limpet.runtime.exposition import Exposition
from limpet.runtime.metrics_book import MetricsBook
from limpet.runtime.small_server import SmallServer, asked, header, problem, response

WITHIN_S: Final = 10.0  # as long as Prometheus waits, unless it is told otherwise
PATH: Final = "/metrics"


class MetricsServer(SmallServer):
    """Writes at its place what a book holds: in a thread, and for one asker at a time."""

    def __init__(self, place: Place, book: MetricsBook) -> None:
        self._exposition = Exposition()
        self._book = book
        self._writing = asyncio.Lock()
        super().__init__(place, self._answered, option="--metrics", within_s=WITHIN_S)

    async def _answered(self, head: bytes) -> bytes:
        method, path = asked(head)
        if path != PATH:
            return problem(HTTPStatus.NOT_FOUND, f"a worker answers {PATH}", path, method)
        if method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "ask with GET", path, method)
        async with self._writing:
            values = self._book.values()
            text, kind = await asyncio.to_thread(self._exposition.text, values, header(head, "accept"))
        return response(HTTPStatus.OK, text, kind, method)


@asynccontextmanager
async def exposed(place: Place | None, book: MetricsBook) -> AsyncIterator[Place | None]:
    """Answer /metrics in the block, where it is wanted; says where."""
    if place is None:
        yield None
        return
    server = MetricsServer(place, book)
    async with server.answering():
        yield server.place
