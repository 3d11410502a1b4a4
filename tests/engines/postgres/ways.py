"""Ways to a server, and short words for what tests ask over them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from limpet.stores.postgres.client import Client
from limpet.stores.postgres.pool import Pool
from limpet.stores.postgres.url import PostgresUrl, parse_postgres
from limpet.stores.postgres.wakeup_receiver import PING_S, WakeupReceiver
from limpet.stores.waiters import Waiters
from tests.servers.postgres import PostgresServer

PID = "SELECT pg_backend_pid()"
SLEEP = "SELECT pg_sleep(%b::double precision)"
PATIENT = "timeout=60"  # more than anything takes on a busy machine, the start of a server included


def route_to(server: PostgresServer, options: str = "", schema: str = "limpet") -> Client:
    """A way to a server, with options as in a URL."""
    return Client(parse_postgres(f"{server.url}?{options}"), schema)


class LoneReceiver(WakeupReceiver):
    """A receiver whose connections serve nothing else; they end with it."""

    def __init__(self, url: PostgresUrl, schema: str, waiters: Waiters, *, ping_s: float = PING_S) -> None:
        self.pool = Pool(url)
        super().__init__(self.pool, schema, waiters, ping_s=ping_s)

    def drop(self) -> None:
        super().drop()
        self.pool.drop()


async def pid(client: Client) -> int:
    """The server process that answers."""
    (number,) = await client.row(PID, verb="test")
    assert isinstance(number, int)
    return number


# What waits as long as somebody holds the same: the server tells who waits.
WAIT = "SELECT pg_backend_pid(), pg_advisory_xact_lock_shared(4711)"


@contextmanager
def held(server: PostgresServer) -> Iterator[None]:
    """Somebody's transaction, for which WAIT waits."""
    with closing(psycopg.connect(server.url)) as line:
        line.execute("SELECT pg_advisory_xact_lock(4711)")
        yield
        line.rollback()


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'"


async def until_waiting(server: PostgresServer, number: int) -> None:
    """Until so many wait for locks."""
    await until(lambda: server.ask(WAITING) == [(number,)])


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that happens within a minute, while the loop goes on."""
    deadline_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline_s, "it never happened"
        await asyncio.sleep(0.01)
