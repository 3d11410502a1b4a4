"""Answers the probes of a worker, /healthz and /readyz, over HTTP: what it answers shows no job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from limpet.core.text.place import Place
from limpet.runtime.health import Health
from limpet.runtime.small_server import SmallServer, asked, problem, response


class ProbeServer(SmallServer):
    """Says at its place whether the worker lives, and whether it is ready."""

    def __init__(self, place: Place, health: Callable[[], Health]) -> None:
        async def answer_now(head: bytes) -> bytes:
            return answer(head, health())

        super().__init__(place, answer_now, option="--probe-port")


def answer(head: bytes, health: Health) -> bytes:
    """The whole answer to one request."""
    method, path = asked(head)
    wrong = {"/healthz": health.unwell, "/readyz": health.unready or health.unwell}.get(path)
    if wrong is None:
        return problem(HTTPStatus.NOT_FOUND, "a worker answers /healthz and /readyz", path, method)
    if method not in ("GET", "HEAD"):
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, "ask with GET", path, method)
    if wrong:
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, wrong, path, method)
    return response(HTTPStatus.OK, b'{"status":"ok"}', "application/json", method)


@asynccontextmanager
async def probed(place: Place | None, health: Callable[[], Health]) -> AsyncIterator[Place | None]:
    """Answer probes in the block, where they are wanted; says where."""
    if place is None:
        yield None
        return
    server = ProbeServer(place, health)
    async with server.answering():
        yield server.place
