"""What depths promise on PostgreSQL, where nobody counts on the way: a bound, counted anew when it is reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from limpet.core.errors import QueueFull
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.bench import Bench
from tests.engines.postgres.guests import guest, soon
from tests.engines.postgres.namespace import Namespace, fresh_namespace
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared

MAIL = "queue:mail"


@pytest.fixture
async def place() -> AsyncIterator[Namespace]:
    async with fresh_namespace(shared(POSTGRES)) as place:
        yield place


async def limited(place: Namespace, depth: int) -> Bench:
    bench = await place.bench()
    await bench.change(GateChange(MAIL, rule=GateRule(MAIL, depth=depth)))
    return bench


def bound(place: Namespace) -> int:
    return int(place.one("SELECT coalesce(sum(n), 0) FROM lp.depth WHERE place = 'qmail'"))


async def test_the_bound_is_never_below_what_waits_or_runs(place: Namespace) -> None:
    bench = await limited(place, 1_000)
    hand = bench.hand()
    for turn in range(40):
        await bench.add_many(turn % 5 + 1, queue="mail")
        jobs = await hand.claim(3)
        await hand.end(("succeed", "fail", "release", "bury", "drop")[turn % 5], *jobs)
        bench.clock.advance(70_000 if turn % 7 == 0 else 1)
        if turn % 6 == 0:
            await bench.store.expire(now_ms=bench.clock.now_ms)
        dead = [view.id for view in await bench.everything() if view.state is State.dead]
        if turn % 8 == 0 and dead:
            assert await bench.retry(*dead) == ["retried"] * len(dead)
        counts = await bench.store.count()
        live = sum(counts.total(state) for state in (State.blocked, State.scheduled, State.ready, State.running))
        assert bound(place) >= live
    await bench.check_books()


@pytest.mark.parametrize("how", ["retry", "replace", "revive", "release"])
async def test_jobs_that_nobody_enqueues_count(place: Namespace, how: str) -> None:
    bench, hand = await limited(place, 10), (await place.bench()).hand()
    if how == "replace":
        for n in range(3):
            await bench.add(queue="other", unique=Unique(str(n)))
    else:
        parents = await bench.add_many(3, queue="mail")
        if how == "revive":
            await bench.put(*(bench.job(queue="mail", after=(id,)) for id in parents))
        jobs = await hand.claim(3)
        if how != "release":
            await hand.end("bury", *jobs)
    with pytest.raises(QueueFull, match="its depth is 10, 0 wait"):  # it is counted now
        await bench.add_many(11, queue="mail")
    if how == "replace":
        for n in range(3):
            await bench.put(bench.job(queue="mail", unique=Unique(str(n), on_duplicate="replace")))
    elif how == "release":
        await hand.release(*jobs)
    else:
        assert await bench.retry(*parents) == ["retried"] * 3
    came = 6 if how == "revive" else 3
    for _ in range(10 - came):
        await bench.add(queue="mail")
    with pytest.raises(QueueFull, match="its depth is 10, 10 wait"):
        await bench.add(queue="mail")


async def test_who_is_refused_leaves_the_count_for_the_next(place: Namespace) -> None:
    bench = await limited(place, 2)
    await bench.add_many(2, queue="mail")
    with pytest.raises(QueueFull):
        await bench.add(queue="mail")
    assert place.ask("SELECT n, waiting FROM lp.depth") == [(2, 2)]


async def test_what_is_noted_of_a_place_stays_short(place: Namespace) -> None:
    bench = await limited(place, 100_000)
    for _ in range(200):
        await bench.add(queue="mail")
    assert place.one("SELECT count(*) FROM lp.depth") <= 66
    assert bound(place) == 200
    await bench.add(queue="other")
    assert place.one("SELECT count(DISTINCT place) FROM lp.depth") == 1  # of a queue without a depth nothing is


async def test_many_at_once_exceed_a_depth_by_no_more_than_is_under_way(place: Namespace) -> None:
    benches = [await limited(place, 50), *[await place.bench() for _ in range(5)]]
    refused = 0

    async def produce(bench: Bench) -> None:
        nonlocal refused
        for _ in range(25):
            try:
                await bench.put(bench.job(queue="mail"))
            except QueueFull:
                refused += 1

    await soon(asyncio.gather(*map(produce, benches)))
    waiting = (await benches[0].store.count()).total(State.ready)
    assert 50 <= waiting <= 50 + len(benches) - 1
    assert waiting + refused == 150


async def test_an_open_transaction_at_a_full_queue_holds_up_nobody(place: Namespace) -> None:
    bench = await limited(place, 2)
    async with guest(place, bench) as one:
        await one.put(bench.job(queue="mail"))
        await soon(bench.add_many(2, queue="mail"))
        with pytest.raises(QueueFull, match="its depth is 2, 3 wait"):
            await one.put(bench.job(queue="mail"))
        with pytest.raises(QueueFull, match="its depth is 2, 2 wait"):
            await soon(bench.add(queue="mail"))
        await soon(bench.hand().drain())
        await soon(bench.add(queue="mail"))
        await one.commit()
    with pytest.raises(QueueFull, match="its depth is 2, 2 wait"):
        await bench.add(queue="mail")


async def test_places_are_forgotten_that_were_counted_long_ago_or_grew_long(place: Namespace) -> None:
    bench = await limited(place, 10_000)
    await bench.add(queue="mail")
    async with guest(place, bench) as one:
        for _ in range(3):
            await one.put(bench.job(queue="mail"))
        await one.commit()
    place.ask("INSERT INTO lp.depth (place, n) SELECT 'qlong', 1 FROM generate_series(1, 1001) RETURNING n")
    await bench.store.prune(Retention(), now_ms=bench.clock.now_ms)
    assert bound(place) == 4
    assert place.one("SELECT count(*) FROM lp.depth WHERE place = 'qlong'") == 0
    place.ask("UPDATE lp.depth SET counted_at = counted_at - interval '2 hours' RETURNING n")
    await bench.store.prune(Retention(), now_ms=bench.clock.now_ms)
    assert bound(place) == 0
    async with guest(place, bench) as one:
        await one.put(bench.job(queue="mail"))  # it counts for itself
        await one.commit()
    with pytest.raises(QueueFull, match="its depth is 10,000, 5 wait"):
        await bench.add_many(9_996, queue="mail")
