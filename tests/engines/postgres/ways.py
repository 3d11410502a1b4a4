"""Ways to a server, and short words for what tests ask over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.stores.postgres.route import Route
from holdfast.stores.postgres.url import parse_postgres
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import PostgresServer

FLAVOURS: tuple[PostgresFlavour, ...] = ("postgres-15", "postgres-18")

PID = "SELECT pg_backend_pid()"
SLEEP = "SELECT pg_sleep(%b::double precision)"


def route_to(server: PostgresServer, options: str = "", schema: str = "holdfast") -> Route:
    """A way to a server, with options as in a URL."""
    return Route(parse_postgres(f"{server.url}?{options}"), schema)


async def pid(route: Route) -> int:
    """The server process that answers."""
    (number,) = await route.row(PID, verb="test")
    assert isinstance(number, int)
    return number


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that happens within ten seconds, while the loop goes on."""
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")
