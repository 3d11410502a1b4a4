"""Callers' own transactions, open for as long as they like: they wait for nobody, and nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import asyncpg
import pytest
from psycopg import IsolationLevel

from limpet.core.errors import QueueDraining, WrongContext
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import IfParentFails, Policy, Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from tests.engines.postgres.guests import guest, soon
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.size import in_matrix

T = TypeVar("T")

TENANTS = 20_000
# What a transaction may have locked when it has stored jobs for any number of tenants: some tables and indexes.
FEW_LOCKS = 100

TABLES = ("job", "wait", "post", "tally", "unique_key", "dep", "lane", "policy")
STORED = "SELECT " + " + ".join(f"(SELECT count(*) FROM lp.{table})" for table in TABLES)


@pytest.fixture
async def place() -> AsyncIterator[Namespace]:
    async with fresh_namespace(shared(POSTGRES)) as namespace:
        yield namespace


def deadlocks(place: Namespace) -> int:
    return int(place.one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))


# -- side by side


@pytest.mark.parametrize("known", [False, True])
async def test_two_enter_a_lane_that_nobody_works_at(place: Namespace, known: bool) -> None:
    bench = await place.bench()
    hand = bench.hand()
    if known:
        await bench.add(tenant="acme")
        await hand.succeed(await hand.take())
        assert await hand.claim() == []
    async with guest(place, bench) as one, guest(place, bench) as two:
        first, second = bench.job(tenant="acme"), bench.job(tenant="acme")
        assert [each.state for each in await one.put(first)] == [State.ready]
        await two.put(second)
        assert await soon(hand.claim()) == []
        await two.commit()
        assert await hand.ids(5) == [second.id]
        await one.commit()
        assert await hand.ids(5) == [first.id]


async def test_two_enter_two_lanes_in_opposite_orders(place: Namespace) -> None:
    bench = await place.bench()
    before = deadlocks(place)
    async with guest(place, bench) as one, guest(place, bench) as two:
        jobs = [
            bench.job(tenant=tenant, policy=Policy(attempts=n))
            for n, tenant in ((1, "a"), (2, "b"), (2, "b"), (1, "a"))
        ]
        for who, job in zip((one, two, one, two), jobs, strict=True):
            await who.put(job)
        await one.commit()
        await two.commit()
    assert sorted(await bench.hand().ids(5)) == sorted(job.id for job in jobs)
    assert deadlocks(place) == before


@pytest.mark.parametrize("calls", [20, *in_matrix("many calls are the harder case", 1)])
async def test_one_transaction_for_very_many_tenants(calls: int) -> None:
    async with fresh_namespace(shared(POSTGRES)) as place:
        bench = await place.bench()
        jobs = [bench.job(tenant=f"tenant {n}") for n in range(TENANTS)]
        size = TENANTS // calls
        async with guest(place, bench) as one:
            for at in range(0, TENANTS, size):
                await bench.joined.enqueue_on(one.line, jobs[at : at + size], now_ms=bench.clock.now_ms)
            ((locks,),) = await one.ask("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()")
            assert locks < FEW_LOCKS
            await one.commit()
        assert place.one("SELECT count(*) FROM lp.wait WHERE state = 2") == TENANTS
        first = await bench.hand().claim(600)
        assert len({job.lane.tenant for job in first}) == 600


# -- whoever is told


@pytest.mark.parametrize("priority", [3, 5])
async def test_workers_are_told_whether_it_is_urgent(place: Namespace, priority: int) -> None:
    bench = await place.bench()
    channel = place.one("SELECT lp.channel_1()")
    with place.connect(autocommit=True) as listener:
        listener.execute(f'LISTEN "{channel}"')
        async with guest(place, bench) as one:
            await one.put(bench.job(priority=priority), bench.job(priority=8))
            await one.commit()
        told = [each.payload for each in listener.notifies(timeout=60, stop_after=1)]
    assert told == ["pu" if priority == 3 else "p"]


async def test_a_driver_that_writes_json_in_its_own_way_carries_limits_too(place: Namespace) -> None:
    bench = await place.bench()
    conn = await asyncpg.connect(place.server.url)
    try:
        await conn.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        async with conn.transaction():
            await bench.joined.enqueue_on(conn, [bench.job(keys=("k",))], [GateRule("limit:k", concurrency=1)])
    finally:
        await conn.close()
    assert len(await bench.hand().claim(5)) == 1
    assert await bench.gate("limit:k") is not None


async def test_a_transaction_that_has_failed_is_told_of_and_takes_nothing(place: Namespace) -> None:
    bench = await place.bench()
    await bench.add()
    job = await bench.hand().take()
    conn = await asyncpg.connect(place.server.url)
    try:
        transaction = conn.transaction()
        await transaction.start()
        await bench.joined.enqueue_on(conn, [bench.job()])
        with pytest.raises(asyncpg.DivisionByZeroError):
            await conn.fetch("SELECT 1 / 0")
        with pytest.raises(WrongContext, match="has failed"):
            await bench.joined.enqueue_on(conn, [bench.job()])
        with pytest.raises(WrongContext, match="has failed"):
            await bench.joined.settle_on(conn, job.id, job.token)
        await transaction.rollback()
    finally:
        await conn.close()
    assert (await bench.store.count()).enqueued == 1


# -- duplicates


async def test_a_duplicate_in_an_open_transaction_is_in_nobodys_way(place: Namespace) -> None:
    bench, other = await place.bench(), await place.bench()
    holder = await bench.add(unique=Unique("u"), delay_ms=9_000)
    async with guest(place, bench) as one:
        assert [each.existing for each in await one.put(bench.job(unique=Unique("u")))] == [True]
        (answer,) = await soon(other.put(other.job(unique=Unique("u"))))
        assert (answer.id, answer.existing) == (holder, True)
        assert await soon(other.cancel(holder)) == ["cancelled"]
        await one.commit()


# -- every isolation


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
async def test_an_old_snapshot_is_no_hindrance(place: Namespace, level: IsolationLevel) -> None:
    bench = await place.bench()
    hand = bench.hand()
    rule = GateRule("limit:k", concurrency=1)
    async with guest(place, bench, level) as one, guest(place, bench, level) as two:
        for each in (one, two):
            await each.ask("SELECT count(*) FROM pg_class")  # it sees nothing of what follows
        ids = await bench.add_many(3)
        await bench.put(bench.job(keys=("k",)), rules=[rule])
        for job in await hand.claim(2):
            await hand.succeed(job)
        await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms)
        await bench.cancel(ids[-1])
        guests = []
        for each in (one, two, one, two):
            jobs = [bench.job(), bench.job(tenant="a"), bench.job(keys=("k",)), bench.job(delay_ms=500)]
            await each.put(*jobs, rules=[rule])
            guests += [job.id for job in jobs]
        assert await hand.claim(2)
        await two.commit()
        await one.commit()
    bench.clock.advance(500)
    assert set(await bench.states(guests)) == {State.ready, State.scheduled}
    for _ in range(30):
        for job in await hand.claim(5):
            await hand.succeed(job)
    assert set(await bench.states(guests)) == {State.succeeded}


async def test_a_transaction_with_savepoints_keeps_what_they_keep(place: Namespace) -> None:
    bench = await place.bench()
    # More than 64: from there on a snapshot no longer knows each of them by itself.
    kept, dropped = [[bench.job(tenant=f"{word} {n}") for n in range(80)] for word in ("kept", "dropped")]
    async with guest(place, bench) as one:
        await one.ask("SELECT 1")
        for keep, drop in zip(kept, dropped, strict=True):
            async with one.line.transaction():
                await one.put(keep)
            async with one.line.transaction(force_rollback=True):
                await one.put(drop)
        await bench.add_many(5)
        assert len(await bench.hand("early").claim(200)) == 5
        await one.commit()
    assert sorted(await bench.hand().ids(200)) == [job.id for job in kept]


# -- workers and operators beside them


async def test_everybody_goes_on_beside_open_transactions(place: Namespace) -> None:
    bench = await place.bench()
    await bench.add_many(40)
    async with guest(place, bench) as one, guest(place, bench) as two, guest(place, bench) as three:
        await one.put(*(bench.job() for _ in range(3)))
        await two.put(*(bench.job(tenant=f"g{n}", policy=Policy(attempts=7)) for n in range(300)))
        rule = GateRule("limit:k", concurrency=1)
        await three.put(bench.job(keys=("k",), delay_ms=1_000), rules=[rule])
        hand = bench.hand()
        for _ in range(8):
            jobs = await soon(hand.claim(5))
            assert len(jobs) == 5
            await soon(hand.end("bury" if _ == 7 else "succeed", *jobs))
        dead = [job.id for job in jobs]
        assert await soon(bench.retry(*dead[:2])) == ["retried", "retried"]
        assert await soon(bench.store.discard(dead[2:3], now_ms=bench.clock.now_ms)) == 1
        assert await soon(bench.cancel(dead[0])) == ["cancelled"]
        await soon(bench.put(bench.job(keys=("k",)), bench.job(tenant="g1", after=(dead[1],)), rules=[rule]))
        assert len(await soon(hand.claim(5))) == 2
        await soon(bench.change(GateChange("limit:k", rule=GateRule("limit:k", concurrency=2))))
        await soon(bench.sweep(3_000, hand))
        await soon(bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms))
        await soon(hand.leave())
        await soon(bench.check_books())
        for each in (three, one, two):
            await each.commit()
    assert len(await bench.hand("late").claim(400)) == 3 + 300 + 1 + 2


async def test_a_job_that_was_on_its_way_when_its_queue_was_drained_waits_there(place: Namespace) -> None:
    """Nobody waits for open transactions, a drain neither: what they commit later is late, not lost."""
    bench = await place.bench()
    hand = bench.hand()
    async with guest(place, bench) as one:
        late = bench.job()
        await one.put(late)
        await soon(bench.change(GateChange("queue:default", drain=True)))
        with pytest.raises(QueueDraining):
            await one.put(bench.job())
        await soon(bench.sweep(1, hand))
        gate = await bench.gate("queue:default")
        assert gate is not None
        assert gate.paused is not None
        assert gate.paused.reason == "drained"
        await one.commit()
    assert await hand.claim(5) == []
    assert await bench.state(late.id) is State.ready
    await bench.change(GateChange("queue:default", resume=True))
    assert await hand.ids(5) == [late.id]


async def test_one_that_is_rolled_back_leaves_nothing(place: Namespace) -> None:
    bench = await place.bench()
    parent = await bench.add(delay_ms=1)
    await bench.hand().claim()
    before = place.one(STORED)
    async with guest(place, bench) as one:
        await one.put(
            bench.job(tenant="a", policy=Policy(attempts=7)),
            bench.job(unique=Unique("u"), delay_ms=9),
            bench.job(after=(parent,), keys=("k",)),
            rules=[GateRule("limit:k", concurrency=1)],
        )
        assert (await one.ask(place.sql(STORED).decode()))[0][0] > before
        await one.line.rollback()
    assert place.one(STORED) == before
    assert not (await bench.put(bench.job(unique=Unique("u"))))[0].existing


# -- who must wait for one of them, since it has the same key, keeps nobody else waiting


@contextlib.asynccontextmanager
async def waiting(place: Namespace, what: Coroutine[Any, Any, T], others: int = 0) -> AsyncIterator[asyncio.Task[T]]:
    """A call that has to wait for a transaction that ends in this block, beside others; it gets its answer then."""
    task = asyncio.create_task(what)
    await place.until_waiting(1 + others)
    yield task
    await soon(task)


async def test_claims_go_on_beside_an_enqueue_that_waits_for_a_key(place: Namespace) -> None:
    bench, other = await place.bench(), await place.bench()
    hand = bench.hand()
    policy = Policy(attempts=7)
    async with guest(place, bench) as one, guest(place, bench) as two:
        await one.put(bench.job(unique=Unique("u")))
        async with waiting(place, other.put(other.job(unique=Unique("u"), policy=policy))):
            await two.put(bench.job(policy=policy))  # the same policy, which nobody has seen stored yet
            await two.commit()
            assert len(await soon(hand.claim())) == 1
            await one.commit()


async def test_settlements_go_on_beside_an_enqueue_that_waits_for_a_key(place: Namespace) -> None:
    bench, other = await place.bench(), await place.bench()
    parent, grandchild = await bench.add(), bench.job()
    hand = bench.hand()
    job = await hand.take()
    await bench.put(bench.job(after=(parent,)))
    async with guest(place, bench) as one:
        await one.put(bench.job(unique=Unique("u")))
        async with waiting(place, other.put(other.job(unique=Unique("u"), after=(parent,)))):
            assert [each.answer for each in await soon(hand.succeed(job))] == ["done"]
            assert await soon(bench.cancel(grandchild.id)) == ["gone"]
            await one.commit()


async def test_settlements_go_on_beside_a_retry_whose_key_is_being_taken(place: Namespace) -> None:
    bench, other = await place.bench(), await place.bench()
    dead, parent = await bench.add(unique=Unique("u")), await bench.add()
    hand = bench.hand()
    await hand.bury(await hand.take())
    job = await hand.take()
    assert job.id == parent
    await bench.put(bench.job(after=(parent,)))
    async with guest(place, bench) as one:
        await one.put(bench.job(unique=Unique("u")))
        retry = asyncio.create_task(other.retry(dead))
        await place.until_waiting(1)
        assert [each.answer for each in await soon(hand.succeed(job))] == ["done"]
        await one.commit()
    assert await soon(retry) == ["unique_held"]


async def test_claims_go_on_beside_a_job_that_is_being_replaced(place: Namespace) -> None:
    bench = await place.bench()
    again = Unique("u", on_duplicate="replace")
    old = await bench.add(unique=again)
    ids = await bench.add_many(3)
    hand = bench.hand()
    await hand.beat()
    async with guest(place, bench) as one:
        (answer,) = await one.put(bench.job(unique=again, args=b'{"new":1}'))
        assert (answer.id, answer.existing) == (old, True)
        assert [job.id for job in (await soon(hand.ask(5))).jobs] == ids
        await one.commit()
    (job,) = await hand.claim(5)
    assert (job.id, job.args) == (old, b'{"new":1}')


async def test_settlements_go_on_beside_a_child_that_is_being_replaced(place: Namespace) -> None:
    bench = await place.bench()
    again = Unique("u", on_duplicate="replace")
    parent, other = await bench.add_many(2)
    child = bench.job(unique=again, after=(parent,))
    await bench.put(child, bench.job(after=(other,)))
    hand = bench.hand()
    jobs = await hand.claim(2)
    async with guest(place, bench) as one:
        await one.put(bench.job(unique=again, args=b'{"new":1}'))
        assert [each.answer for each in await soon(hand.succeed(*jobs))] == ["done", "done"]
        assert len(await soon(hand.claim(5))) == 1
        waits = await hand.ask()
        assert not waits.again  # it is in somebody's hands: to be looked for again, and not at once
        assert waits.next_at_ms == bench.clock.now_ms + 500
        await one.commit()
    assert await hand.ids(5) == [child.id]


@pytest.mark.parametrize("mode", ["cancel", "run"])
async def test_failures_go_on_beside_a_child_that_is_being_replaced(place: Namespace, mode: IfParentFails) -> None:
    bench = await place.bench()
    again = Unique("u", on_duplicate="replace")
    parent, other = await bench.add_many(2)
    child, below = bench.job(unique=again, after=(parent,), if_parent_fails=mode), bench.job(after=(other,))
    await bench.put(child, below)
    hand = bench.hand()
    jobs = await hand.claim(2)
    async with guest(place, bench) as one:
        await one.put(bench.job(unique=again, args=b'{"new":1}'))
        for job in jobs:
            assert (await soon(hand.bury(job))).answer == "done"
        assert await bench.state(below.id) is State.cancelled
        assert await soon(hand.claim(5)) == []
        await one.commit()
    assert await hand.ids(5) == ([child.id] if mode == "run" else [])
    assert await bench.state(child.id) is (State.running if mode == "run" else State.cancelled)


async def test_the_same_call_made_twice_beside_one_of_the_same_key_is_one(place: Namespace) -> None:
    bench, other = await place.bench(), await place.bench()
    job = bench.job(unique=Unique("u"))
    async with guest(place, bench) as one:
        await one.put(bench.job(unique=Unique("u")))
        async with waiting(place, bench.put(job)) as first, waiting(place, other.put(job), others=1) as second:
            await one.line.rollback()
    assert sorted(answer.existing for task in (first, second) for answer in task.result()) == [False, True]
    assert await bench.hand().ids(5) == [job.id]
