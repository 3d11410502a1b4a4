"""Whoever has seen a store notices that its schema was made anew or set back, and goes on with what is there."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from limpet.core.jobs.witness import Sight, change
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.installations import POSTGRES
from tests.servers.postgres import bury, fresh_database, shared

SOON_S = 60


@pytest.fixture
def url() -> str:
    """A database that this test may drop."""
    return fresh_database(shared(POSTGRES))


async def sight(bench: Bench) -> Sight:
    pulse = await bench.hand("watcher").beat()
    return Sight(pulse.store, pulse.token)


async def test_a_schema_that_was_made_anew_is_another_store(url: str) -> None:
    store = open_store(url)
    bench = Bench(store, Clock())
    await bench.add()
    hand = bench.hand()
    held = await hand.take()
    before, name = await sight(bench), store.identity
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("DROP SCHEMA limpet CASCADE")
    other = open_store(url)
    await other.open()
    found = change(before, await sight(bench))
    assert found is not None
    assert found.kind == "other"
    assert (await hand.succeed(held))[0].answer in ("stale", "gone")
    id = await bench.add()
    assert store.identity not in ("", name), "a producer hears of it with its next enqueue"
    on = bench.hand("on")
    assert [job.id for job in await on.claim()] == [id]
    assert await on.claim() == []
    await _wakes(bench, url)
    await bench.check_books()
    await other.close()
    await store.close()


async def _wakes(bench: Bench, url: str) -> None:
    """Transactions of callers' own post on a channel of the schema: the one that it has now must be heard."""
    hand = bench.hand("on")
    async with asyncio.timeout(SOON_S), await psycopg.AsyncConnection.connect(url) as conn:
        while True:
            sleeping = asyncio.create_task(hand.wait(1_000))
            await bench.joined.enqueue_on(conn, [bench.job()], now_ms=bench.clock.now_ms)
            await conn.commit()
            if (await sleeping).work:  # the receiver may still be on its way to the new channel
                break
            await hand.drain()
    await hand.drain()


async def test_an_older_copy_of_the_database_is_the_same_store_set_back(url: str) -> None:
    server, name = shared(POSTGRES), url.rpartition("/")[2]
    store, clock = open_store(url), Clock()
    bench = Bench(store, clock)
    await bench.add_many(2)
    await bench.hand().take()
    await store.close()
    bury(url)
    server.ask(f"CREATE DATABASE {name}_backup TEMPLATE {name}")
    clock.advance(60_000)
    late = await bench.hand("late").take()
    before = await sight(bench)
    await store.close()
    bury(url)
    server.ask(f"DROP DATABASE {name}")
    server.ask(f"ALTER DATABASE {name}_backup RENAME TO {name}")
    found = change(before, await sight(bench))
    assert found is not None
    assert found.kind == "older"
    assert (await bench.hand("late").succeed(late))[0].answer in ("stale", "gone")
    clock.advance(1)
    (again,) = await bench.hand("on").claim()
    assert (again.id, again.token > late.token) == (late.id, True)
    await bench.hand("on").succeed(again)
    assert change(before, await sight(bench)) is None
    await bench.check_books()
    await store.close()
