"""Whoever has seen a store notices that it was emptied, swapped or set back, and goes on with the one that is there."""

from __future__ import annotations

from limpet.core.jobs.witness import Sight, change
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.redis import RedisServer


async def sight(bench: Bench) -> Sight:
    pulse = await bench.hand("watcher").beat()
    return Sight(pulse.store, pulse.token)


async def goes_on(bench: Bench) -> None:
    """A worker that lived through it takes and ends the jobs of the store that is there."""
    id = await bench.add()
    hand = bench.hand("on")
    assert [job.id for job in await hand.claim()] == [id]
    await bench.check_books()


async def test_an_emptied_server_is_another_store(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add()
    hand = bench.hand()
    held = await hand.take()
    before, name = await sight(bench), store.identity
    server.ask("FLUSHALL")
    found = change(before, await sight(bench))
    assert found is not None
    assert found.kind == "other"
    assert (await hand.succeed(held))[0].answer in ("stale", "gone")
    await goes_on(bench)
    assert store.identity not in ("", name), "a producer hears of it with its next enqueue"


async def test_a_database_that_was_swapped_is_another_store(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add()
    before = await sight(bench)
    server.ask("SWAPDB", 0, 1)
    found = change(before, await sight(bench))
    assert found is not None
    assert found.kind == "other"
    other = open_store(f"{server.url}/1")
    assert (await Bench(other, bench.clock).hand("watcher").beat()).store == before.store, "it kept its name"
    await other.close()


async def test_an_older_snapshot_is_the_same_store_set_back(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    await bench.add_many(2)
    await bench.hand().take()
    await sight(bench)
    server.ask("CONFIG", "SET", "appendonly", "no")
    server.ask("SAVE")
    bench.clock.advance(60_000)
    late = await bench.hand("late").take()
    before = await sight(bench)
    server.aof = None
    server.kill()
    server.start()
    found = change(before, await sight(bench))
    assert found is not None
    assert found.kind == "older"
    assert (await bench.hand("late").succeed(late))[0].answer in ("stale", "gone")
    bench.clock.advance(1)
    (again,) = await bench.hand("on").claim()
    assert again.id == late.id
    assert again.token > late.token, "tokens grow with time, also across a store that was set back"
    await bench.hand("on").succeed(again)
    assert change(before, await sight(bench)) is None
    await bench.check_books()
