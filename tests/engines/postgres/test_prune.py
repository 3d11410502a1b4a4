"""What pruning promises on PostgreSQL alone: nothing is left behind, and the cost of a step does not grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Entry, Retention
from limpet.stores.postgres.operate import AT_ONCE
from tests.engines.postgres.places import Place, a_place, dead
from tests.servers.installations import POSTGRES

HOUR_MS = 3_600_000
ALL = Retention(succeeded_ms=0, cancelled_ms=0, dead_ms=0, audit_ms=0, event_ms=0)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


async def prune(place: Place, retention: Retention = ALL, limit: int = 1_000) -> int:
    """Prune until there is no more to remove."""
    removed = 0
    while step := await place.store.prune(retention, limit, now_ms=place.clock.now_ms):
        removed += step
    return removed


async def test_nothing_is_left_of_a_store_whose_jobs_are_done(place: Place) -> None:
    rule, parent = GateRule("limit:x", concurrency=1), await place.add(unique=Unique("k", for_ms=1_000))
    await place.put(place.job(limits=("x",), after=(parent,), tenant="g"), rules=[rule])
    await place.add(breaker="b")
    hand = place.hand()
    job = await hand.take()
    await hand.save(job, Note("step", "a", b"1"))
    await hand.fail(job)
    await hand.succeed(await hand.take(), result=b"1")
    await hand.drain()
    await dead(place)
    await place.cancel(await place.add(delay_ms=1_000))
    with pytest.raises(Exception, match="is ready"):
        await place.store.watch(await place.add(), 1)
    await hand.drain()
    await place.store.append([Entry("audit", 1, "a"), Entry("event", 1, "e")])
    await hand.leave()
    await place.hand("undertaker").leave()
    for _ in range(4):
        place.clock.advance(2 * HOUR_MS)
        await prune(place)
    kept = {"control", "count", "floor", "home", "migration", "outbox", "policy", "pruned", "sweep", "turn"}
    tables = place.ask(
        "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'",
        f"limpet_{place.namespace}",
    )
    full = {table for (table,) in tables if place.ask(f"SELECT EXISTS (SELECT FROM lp.{table})") == [(True,)]}
    assert full <= kept
    assert {what for (what,) in place.ask("SELECT what FROM lp.count")} <= {10, 11, 12, 13}


async def test_a_step_does_not_walk_over_what_the_last_one_removed(place: Place) -> None:
    """As long as somebody's snapshot is older, no index entry of a removed row goes."""
    lane = (await place.view(await place.add())).lane.id
    await place.hand().drain()
    await prune(place)
    ids = "decode(lpad(to_hex(n), 32, '0'), 'hex')"
    series = "FROM generate_series(1, 20000) AS n RETURNING 1"
    place.ask(f"INSERT INTO lp.job SELECT {ids}, {lane}, 1, n, NULL, NULL, '' {series}")
    place.ask(f"INSERT INTO lp.done SELECT {ids}, {lane}, n, n, n, NULL, 1, 0, 0, 1, 4, 5, 0 {series}")
    place.ask(f"INSERT INTO lp.tally VALUES ({lane}, '{{10,4,11}}', '{{20000,20000,20000}}') RETURNING 1")
    now = place.clock.now_ms
    with place.holding("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM lp.done"):
        for _ in range(19):
            assert await place.store.prune(Retention(succeeded_ms=0), now_ms=now) == 1_000
        query = (
            f"SELECT * FROM lp.lock_outlived(4::smallint, (SELECT at_ms FROM lp.pruned WHERE what = '4'), {now}, 1000)"
        )
        plan = place.ask(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")[0][0][0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 3_000  # one for each row, and a few
    assert await prune(place, Retention(succeeded_ms=0)) >= 1_000


async def test_jobs_that_ended_before_the_last_step_are_found_all_the_same(place: Place) -> None:
    place.clock.advance(HOUR_MS)
    await place.add()
    await place.hand().drain()
    await prune(place, Retention(succeeded_ms=0))
    place.clock.advance(-HOUR_MS)  # another clock
    id = await place.add()
    await place.hand().drain()
    place.clock.advance(HOUR_MS)
    await prune(place, Retention(succeeded_ms=0))
    assert await place.states([id]) == [None]


async def test_more_ids_than_one_step_takes_are_answered_in_order(place: Place) -> None:
    ids = await place.add_many(AT_ONCE + 20)
    missing = place.id()
    answers = await place.cancel(*ids, missing)
    assert answers == [*["cancelled"] * len(ids), "gone"]
    assert await place.retry(missing, *ids[:2]) == ["gone", "not_dead", "not_dead"]


async def test_a_parent_and_its_child_in_two_steps_are_both_cancelled(place: Place) -> None:
    parent = await place.add()
    others = await place.add_many(AT_ONCE)
    child = await place.add(after=(parent,))
    assert set(await place.cancel(parent, *others, child)) == {"cancelled"}


async def test_of_two_dead_jobs_of_one_key_the_first_named_is_retried(place: Place) -> None:
    ids = [await dead(place, unique=Unique("k")) for _ in range(2)]
    assert await place.retry(ids[1], ids[0]) == ["retried", "unique_held"]


async def test_weights_are_heeded_by_turns_that_are_under_way(place: Place) -> None:
    for tenant in ("a", "b"):
        await place.add_many(8, tenant=tenant)
    hand = place.hand()
    await hand.succeed(*await hand.claim(2))
    await place.store.put_control(Control("weight", "tenant:b", b"3"))
    jobs = await hand.claim(8)
    assert [job.lane.tenant for job in jobs] == ["a", "b", "a", "b", "a", "b", "b", "b"]  # from its next turn on
    await place.store.put_control(Control("weight", "tenant:c", str(10**30).encode()))
    await place.add(tenant="c")
    assert len(await hand.claim(5)) == 5


async def test_counters_of_queues_without_jobs_do_not_pile_up(place: Place) -> None:
    for number in range(20):
        await place.add(queue=f"q{number}")
    await place.hand().drain()
    place.clock.advance(HOUR_MS)
    await prune(place)
    assert place.ask("SELECT count(*) FROM lp.count WHERE queue <> ''") == [(0,)]
    assert (await place.store.count()).succeeded == 20


async def test_causes_are_the_same_before_and_after_they_are_folded(place: Place) -> None:
    hand, ids = place.hand(), []
    for number in range(6):
        id = await place.add(queue=f"q{number % 2}")
        await hand.bury(await hand.take(), cause="c", message=f"m{number}")
        ids.append(id)
        place.clock.advance(10)
        if number == 3:
            await place.store.prune(Retention(), now_ms=place.clock.now_ms)
    await place.retry(ids[0])
    before = await place.store.causes()
    await place.store.prune(Retention(), now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM lp.cause_tally") == [(0,)]
    assert await place.store.causes() == before
    assert [(each.queue, each.count, each.message) for each in before] == [("q1", 3, "m5"), ("q0", 2, "m4")]
    await place.store.discard(ids, now_ms=place.clock.now_ms)
    await place.store.prune(Retention(), now_ms=place.clock.now_ms)
    assert await place.store.causes() == []
    assert place.ask("SELECT count(*) FROM lp.cause") == [(0,)]


async def test_what_operators_called_is_remembered_for_an_hour_and_no_longer(place: Place) -> None:
    id = await place.add()
    await place.cancel(id)
    place.clock.advance(HOUR_MS - 1)
    await prune(place, Retention())
    assert place.ask("SELECT count(*) FROM lp.receipt WHERE session = ''") == [(1,)]
    place.clock.advance(1)
    await prune(place, Retention())
    assert place.ask("SELECT count(*) FROM lp.receipt WHERE session = ''") == [(0,)]


async def test_records_and_logs_take_any_text_and_very_long_times(place: Place) -> None:
    written = await place.store.put_control(Control("k", "\u20ac\x00", b"\x00"))
    assert written is not None
    assert [control.value for control in await place.store.controls("k")] == [b"\x00"]
    await place.store.append([Entry("audit", 1, "k", "a\x00", b"\x00" * 16, "\ud800", b"\x00\xff")] * 3)
    assert [(entry.actor, entry.data) for entry in await place.store.read("audit", limit=2)] == [
        ("a\ufffd", b"\x00\xff")
    ] * 2
    await prune(place, Retention(audit_ms=1 << 70, succeeded_ms=1 << 70))
    assert len(await place.store.read("audit")) == 3
    id = await dead(place)
    await place.retry(id, delay_ms=1 << 70)
    assert await place.state(id) is State.scheduled


async def test_many_append_at_once_and_every_line_is_there(place: Place) -> None:
    others = [place, *[await place.another() for _ in range(3)]]
    lines = [[Entry("event", 1, f"{n}-{m}") for m in range(3)] for n in range(4)]
    await asyncio.gather(*(other.store.append(each) for other, each in zip(others, lines, strict=True)))
    read = await place.store.read("event")
    assert sorted(entry.kind for entry in read) == sorted(entry.kind for each in lines for entry in each)
    assert [entry.seq for entry in read] == sorted(entry.seq for entry in read)


async def test_a_sweep_folds_what_a_wave_of_deaths_left_behind(place: Place) -> None:
    """Otherwise the causes take longer with every death: their question reads all that is not folded."""
    await place.add()
    hand = place.hand()
    await hand.bury(await hand.take(), cause="c")
    place.ask("INSERT INTO lp.cause_tally SELECT t.* FROM lp.cause_tally AS t, generate_series(2, 9000) RETURNING 1")
    assert place.ask("SELECT count(*) FROM lp.cause_tally") == [(9_000,)]
    await place.store.expire(now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM lp.cause_tally") == [(0,)]
    assert [each.count for each in await place.store.causes()] == [9_000]
