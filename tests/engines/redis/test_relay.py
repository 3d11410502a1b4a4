"""What relaying promises on Redis alone: jobs stand in the order in which they were written, whatever their ids."""

from __future__ import annotations

from limpet.core.jobs.job import Unique
from limpet.stores.base import Store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.redis.audit import Audit
from tests.servers.redis import RedisServer


async def test_jobs_of_a_batch_keep_their_order_whatever_their_ids(server: RedisServer, store: Store) -> None:
    """Producers on two machines have two clocks, and the database has put their transactions in one order."""
    bench = Bench(store, Clock())
    jobs = [bench.job() for _ in range(30)]
    jobs = jobs[::-2] + jobs[::2]
    await store.relay("orders", 1, jobs)
    assert await bench.hand().drain() == [job.id for job in jobs]
    assert Audit(server, "default").look() == []


async def test_the_first_of_a_batch_gets_the_unique_key_whatever_its_id(store: Store) -> None:
    bench = Bench(store, Clock())
    later, earlier = bench.job(unique=Unique("k")), bench.job(unique=Unique("k"))
    answers = await store.relay("orders", 1, [earlier, later])
    assert answers is not None
    assert [answer.id for answer in answers] == [earlier.id, earlier.id]
    assert [answer.existing for answer in answers] == [False, True]


async def test_parents_may_stand_after_their_children(server: RedisServer, store: Store) -> None:
    bench = Bench(store, Clock())
    parent = bench.job()
    child = bench.job(after=(parent.id,))
    await store.relay("orders", 1, [child, parent])
    bench.clock.advance(60_000)
    assert await bench.hand().drain() == [parent.id, child.id]
    assert Audit(server, "default").look() == []
