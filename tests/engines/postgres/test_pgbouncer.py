"""Behind PgBouncer in transaction mode every verb means the same; only wake-ups need a way past it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count

import psycopg
import pytest

from limpet.core.jobs.state import State
from limpet.stores.asking import examined
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.url import parse_postgres
from limpet_contract import behaviours as contract
from limpet_contract.bench import Bench
from limpet_contract.harness import Harness
from tests.engines.postgres.ways import until
from tests.servers.installations import POSTGRES
from tests.servers.pgbouncer import PgBouncer, pooled
from tests.servers.postgres import own, shared

# Those that lean most on connections: repeats, wake-ups, and what is told to others.
_BEHAVIOURS = ("TestClaim", "TestRepeatedClaim", "TestSettle", "TestWakeUps")
globals().update({name: getattr(contract, name) for name in ("bench", *_BEHAVIOURS)})


@pytest.mark.matrix("a sweep is a statement like any other")
class TestLosses(contract.TestLosses):
    """Behind the pool, too."""


@pytest.mark.matrix("a watcher is told as a sleeper is")
class TestWatch(contract.TestWatch):
    """Behind the pool, too."""


LONG_MS = 60_000  # far longer than a busy machine takes for anything here

_names = count(1)


@pytest.fixture(scope="module")
def pool() -> Iterator[PgBouncer]:
    with pooled(shared(POSTGRES)) as pool:
        yield pool


class Behind:
    """A schema on the shared server, reached through the pool; LISTEN goes past it."""

    name = "postgres behind pgbouncer"

    def __init__(self, url: str) -> None:
        self._url = url
        self._namespaces: dict[int, str] = {}
        self._opened: list[Store] = []

    async def open(self) -> Store:
        return await self._handle(f"pooled{next(_names)}")

    async def reopen(self, store: Store) -> Store:
        return await self._handle(self._namespaces[id(store)])

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        for namespace in set(self._namespaces.values()):
            await until(partial(_dropped, f"limpet_{namespace}"))

    async def _handle(self, namespace: str) -> Store:
        store = open_store(self._url, namespace)
        self._opened.append(store)
        self._namespaces[id(store)] = namespace
        await store.open()
        return store


def _dropped(schema: str) -> bool:
    """False when wake-ups of the last change, for which nobody waits, are still under way there."""
    try:
        shared(POSTGRES).ask(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
    except psycopg.errors.DeadlockDetected:
        return False
    return True


@pytest.fixture
def engine(pool: PgBouncer) -> Harness:
    return Behind(f"{pool.url}?timeout=60&listen_url=127.0.0.1:{shared(POSTGRES).port}")


@pytest.fixture
async def deaf(pool: PgBouncer) -> AsyncIterator[Bench]:
    """A store that has no way past the pool."""
    harness = Behind(f"{pool.url}?timeout=60")
    yield await Bench.open(harness)
    await harness.close()


# -- statements


async def test_nothing_is_prepared_where_somebody_else_may_get_the_session(pool: PgBouncer) -> None:
    client = Client(parse_postgres(pool.url), "limpet")
    for number in range(5):
        assert await client.row("SELECT %b::bigint", (number,), verb="test") == (number,)
    assert await client.rows("SELECT 1 FROM pg_prepared_statements", verb="test") == []
    assert client.pooled
    client.drop()


async def test_where_the_pool_keeps_prepared_statements_they_can_be_asked_for() -> None:
    with pooled(shared(POSTGRES), prepared=100) as pool:
        client = Client(parse_postgres(f"{pool.url}?prepare=yes"), "limpet")
        for number in range(50):
            assert await client.row("SELECT %b::bigint", (number,), verb="test") == (number,)
        answers = await asyncio.gather(*(client.row("SELECT %b::bigint", (n,), verb="test") for n in range(50)))
        assert answers == [(number,) for number in range(50)]
        client.drop()


async def test_a_call_that_takes_too_long_is_stopped_through_the_pool(pool: PgBouncer) -> None:
    client = Client(parse_postgres(f"{pool.url}?timeout=60"), "limpet")
    await client.row("SELECT 1", verb="test")
    with pytest.raises(Exception, match="did not answer within"):
        await client.rows("SELECT pg_sleep(77)", verb="test", timeout_s=0.4)
    deadline = time.monotonic() + 60
    running = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(77)%' AND state = 'active'"
    while shared(POSTGRES).ask(running):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert await client.row("SELECT 1", verb="test") == (1,)
    client.drop()


async def test_a_server_that_is_started_again_behind_the_pool_is_found_again() -> None:
    with own(POSTGRES) as server, pooled(server) as pool:
        client = Client(parse_postgres(f"{pool.url}?timeout=60"), "limpet")
        assert await client.row("SELECT 1", verb="test") == (1,)
        server.kill()
        waiting = [asyncio.create_task(client.row("SELECT 2", verb="test")) for _ in range(5)]
        await asyncio.sleep(0.3)
        server.start()
        assert await asyncio.gather(*waiting) == [(2,)] * 5
        client.drop()


async def test_a_pool_that_is_started_again_is_found_again() -> None:
    with pooled(shared(POSTGRES)) as pool:
        client = Client(parse_postgres(f"{pool.url}?timeout=60"), "limpet")
        assert await client.row("SELECT 1", verb="test") == (1,)
        pool.kill()
        waiting = [asyncio.create_task(client.row("SELECT 2", verb="test")) for _ in range(5)]
        await asyncio.sleep(0.3)
        pool.start()
        assert await asyncio.gather(*waiting) == [(2,)] * 5
        client.drop()


# -- without a way past the pool


async def test_without_wake_ups_work_is_found_within_a_moment(deaf: Bench) -> None:
    hand = deaf.hand("one")
    assert await hand.claim(1) == []
    other = await deaf.other()
    sleeping = asyncio.create_task(deaf.store.wait("one", LONG_MS))
    await asyncio.sleep(0.1)
    start = time.monotonic()
    await other.add()
    while not await hand.claim(1):
        assert (await sleeping).work
        assert time.monotonic() - start < LONG_MS / 2_000
        sleeping = asyncio.create_task(deaf.store.wait("one", LONG_MS))
    sleeping.cancel()


async def test_without_wake_ups_a_result_is_seen_within_a_moment(deaf: Bench) -> None:
    hand = deaf.hand("one")
    id = await deaf.add()
    watching = asyncio.create_task(deaf.store.watch(id, LONG_MS))
    (job,) = await hand.claim(1)
    await hand.succeed(job)
    view = await watching
    assert view is not None
    assert view.state is State.succeeded


async def test_doctor_names_the_way_past_the_pool(deaf: Bench, engine: Harness) -> None:
    (finding,) = [each for each in await examined(deaf.store).check() if each.code == "pooler"]
    assert finding.level == "warning"
    assert "listen_url" in finding.fix
    past = await engine.open()
    (finding,) = [each for each in await examined(past).check() if each.code == "pooler"]
    assert finding.level == "ok"
    await engine.close()
