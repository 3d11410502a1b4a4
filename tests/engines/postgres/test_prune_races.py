"""Whoever prunes waits for nobody, and takes nothing from under those who are half-way through."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from tests.engines.postgres.places import COUNTS, GRAPH, Place, a_place, dead, soon, start
from tests.servers.installations import POSTGRES

HOUR_MS = 3_600_000


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


# -- prune


async def test_pruning_waits_for_nobody(place: Place) -> None:
    held, free = await dead(place), await dead(place)
    place.clock.advance(HOUR_MS)
    with place.holding(f"SELECT FROM lp.done WHERE id = '\\x{held.hex()}' FOR KEY SHARE", GRAPH):
        assert await soon(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)) == 1
    assert await place.states([held, free]) == [State.dead, None]
    assert await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms) >= 1
    assert await place.states([held]) == [None]


async def test_a_parent_stays_while_somebody_else_is_at_the_graph(place: Place) -> None:
    parent = await place.add(task="parent")
    child = await place.add(after=(parent,), if_parent_fails="wait")
    hand = place.hand()
    await hand.bury(await hand.take())
    place.clock.advance(HOUR_MS)
    with place.holding(GRAPH):
        assert await soon(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)) == 0
    assert await place.states([parent, child]) == [State.dead, State.blocked]
    await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)
    assert await place.states([parent, child]) == [None, State.cancelled]


async def test_a_dead_parent_is_not_pruned_under_a_child_that_is_just_enqueued(place: Place) -> None:
    parent, other = await dead(place, task="parent"), await place.another()
    place.clock.advance(HOUR_MS)
    child = place.job(after=(parent,), if_parent_fails="wait")
    with place.holding(COUNTS):
        enqueue = start(other.put(child))
        await place.until_waiting(1)
        prune = start(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms))
        await place.until_waiting(2)
    await enqueue
    await prune
    assert await place.states([parent, child.id]) in ([State.dead, State.blocked], [None, State.cancelled])
    await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)
    assert await place.states([parent, child.id]) == [None, State.cancelled]


async def test_a_job_whose_key_is_just_taken_over_is_pruned_the_next_time(place: Place) -> None:
    key, other = Unique("k"), await place.another()
    held, free = await dead(place, unique=key), await dead(place)
    place.clock.advance(HOUR_MS)
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.joined.enqueue_on(line, [place.job(unique=key)], now_ms=place.clock.now_ms)
        await soon(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms))
        assert await place.states([held, free]) == [State.dead, None]
        line.commit()
    await place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms)
    assert await place.states([held]) == [None]
    assert (await place.put(place.job(unique=key)))[0].existing


async def test_two_who_prune_take_turns(place: Place) -> None:
    ids, other = [await dead(place) for _ in range(3)], await place.another()
    place.clock.advance(HOUR_MS)
    with place.holding("LOCK TABLE lp.gone IN EXCLUSIVE MODE"):
        first = start(place.store.prune(Retention(dead_ms=1), now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        assert (
            await soon(other.store.prune(Retention(dead_ms=1, event_ms=None, audit_ms=None), now_ms=place.clock.now_ms))
            == 0
        )
    assert await first >= 3
    assert await place.states(ids) == [None] * 3


async def test_counts_stay_what_they_are_while_they_are_folded(place: Place) -> None:
    await place.add_many(3)
    hand = place.hand()
    await hand.bury(await hand.take())
    before, causes = await place.store.count(), await place.store.causes()
    other = await place.another()
    with place.holding("SELECT lp.lock(:FLOOR)"):
        fold = start(place.store.prune(Retention(), now_ms=place.clock.now_ms))
        await place.until_waiting(1)  # it has folded, and wants to write the lanes' numbers
        assert await other.store.count() == before
        assert await soon(other.store.enqueue([place.job()], now_ms=place.clock.now_ms))
        assert place.ask("SELECT lp.fold_1(10)") == [(0,)]
    await fold
    after = await place.store.count()
    assert (after.enqueued, after.total(State.ready), after.total(State.dead)) == (4, 3, 1)
    assert await place.store.causes() == causes
    assert place.ask("SELECT count(*) FROM lp.cause_tally") == [(0,)]


async def test_a_lane_is_forgotten_and_comes_back_with_the_next_job(place: Place) -> None:
    other = await place.another()
    await place.add(tenant="g")
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    job = place.job(tenant="g")
    with place.holding(COUNTS) as stop:
        enqueue = start(other.put(job))
        await place.until_waiting(1)  # its post is written, and not yet to be seen
        stop.rollback()
        await enqueue
    for _ in range(5):
        await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM lp.lane_now") == [(1,)]
    assert await place.hand().ids() == [job.id]


async def test_a_lane_dropped_under_an_enqueue_in_flight_is_there_again(place: Place) -> None:
    other = await place.another()
    await place.add(tenant="g")
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    job = place.job(tenant="g")
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.joined.enqueue_on(line, [job], now_ms=place.clock.now_ms)
        for _ in range(5):
            await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
        assert place.ask("SELECT (SELECT count(*) FROM lp.lane_now), (SELECT count(*) FROM lp.lane)") == [(0, 0)]
        line.commit()
    assert await place.hand().ids() == [job.id]


async def test_a_lane_stays_while_its_jobs_are_not_yet_folded(place: Place) -> None:
    await place.add(tenant="g")
    await place.hand().drain()
    await place.store.prune(Retention(succeeded_ms=0), now_ms=place.clock.now_ms)
    assert place.ask("SELECT jobs FROM lp.lane_now") == [(0,)]  # it stays for an hour
    place.clock.advance(2 * HOUR_MS)
    later = await place.add(tenant="g", delay_ms=HOUR_MS)
    with place.holding("SELECT lp.lock(:FOLD)"):  # somebody else is folding
        await place.store.prune(Retention(), now_ms=place.clock.now_ms)
    place.clock.advance(HOUR_MS)
    assert await place.hand().ids() == [later]


async def test_a_lane_goes_after_what_was_posted_about_it(place: Place) -> None:
    id = await dead(place)
    assert await place.retry(id) == ["retried"]  # posted, and filed by nobody
    await place.cancel(id)
    place.clock.advance(2 * HOUR_MS)
    for _ in range(4):
        await place.store.prune(Retention(cancelled_ms=1), now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM lp.lane_now") == [(0,)]
    assert await place.hand().claim() == []


async def test_a_limit_forgotten_under_an_enqueue_in_flight_still_limits(place: Place) -> None:
    """The enqueue saw the limit as it should be and declared nothing."""
    rule = GateRule("limit:x", concurrency=1, unit="usd", cap=5, period="minute")
    other = await place.another()
    await place.put(place.job(limits=("x",)), rules=[rule])
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    jobs = [place.job(limits=("x",)) for _ in range(3)]
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        await other.joined.enqueue_on(line, jobs, [rule], now_ms=place.clock.now_ms)
        for _ in range(5):
            await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
        assert await place.gate("limit:x") is None
        line.commit()
    assert len(await place.hand().claim(3)) == 1
    gate = await place.gate("limit:x")
    assert gate is not None
    assert (gate.rule, gate.used) == (rule, 1)


async def test_a_forgotten_limit_is_gone_for_good_when_nobody_can_have_seen_it(place: Place) -> None:
    await place.put(place.job(limits=("x",)), rules=[GateRule("limit:x", concurrency=1)])
    await place.hand().drain()
    place.clock.advance(2 * HOUR_MS)
    for _ in range(6):
        await place.store.prune(Retention(succeeded_ms=1), now_ms=place.clock.now_ms)
    assert place.ask("SELECT (SELECT count(*) FROM lp.gate), (SELECT count(*) FROM lp.gate_old)") == [(0, 0)]
