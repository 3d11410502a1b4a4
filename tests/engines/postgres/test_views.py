"""Asking on PostgreSQL: one snapshot per answer, what is only posted counts, and searches end where they must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.stores.postgres import PostgresStore, find
from limpet_contract.bench import Bench
from tests.contract.harnesses import PostgresSchema
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    harness = PostgresSchema(tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def pages(bench: Bench, query: Query) -> tuple[list[bytes], int]:
    """All ids that a query finds, and on how many pages."""
    found: list[bytes] = []
    for number in range(1, 10_000):
        page = await bench.store.find(query, now_ms=bench.clock.now_ms)
        found += [job.id for job in page.jobs]
        if page.cursor is None:
            return found, number
        query = Query(query.states, query.terms, query.limit, page.cursor, query.newest_first)
    raise AssertionError("the pages never end")


# -- one snapshot


async def test_a_job_on_the_move_is_seen_once_by_whoever_looks(bench: Bench) -> None:
    """It goes from table to table; an answer that read them one after the other would miss it or show it twice."""
    ids = set(await bench.add_many(8))
    mover, over = await bench.other(), asyncio.Event()

    async def move() -> None:
        hand = mover.hand("mover")
        for round in range(40):
            jobs = await hand.claim(8)
            await (hand.bury(jobs[0]) if round % 2 else hand.release(*jobs[:1]))
            await hand.release(*jobs[1:])
            dead = (await mover.store.find(Query(frozenset({State.dead})), now_ms=mover.clock.now_ms)).jobs
            await mover.retry(*(job.id for job in dead))
        over.set()

    moving = asyncio.create_task(move())
    looks = 0
    while not over.is_set() and not moving.done():
        assert {job.id for job in await bench.store.get(sorted(ids)) if job is not None} == ids
        found = [job.id for job in (await bench.store.find(Query(), now_ms=bench.clock.now_ms)).jobs]
        assert sorted(found) == sorted(ids)
        assert sum((await bench.store.count()).now.values()) == len(ids)
        looks += 1
    await moving
    assert looks > 5


# -- what no claim has filed yet


async def test_a_queue_whose_jobs_are_only_posted_is_known(bench: Bench) -> None:
    await bench.add_many(2, queue="new", task="t")
    bench.clock.advance(100)
    late = await bench.add(queue="new", task="t")
    await bench.add(queue="later", delay_ms=5_000)
    queues = {view.queue: view for view in (await bench.store.count(queues=True)).queues}
    assert {name: view.counts for name, view in queues.items()} == {
        "new": {State.ready: 3},
        "later": {State.scheduled: 1},
    }
    assert queues["new"].oldest_ready_at_ms == bench.clock.now_ms - 100
    assert queues["later"].oldest_ready_at_ms is None
    standing = await bench.store.inspect(late, now_ms=bench.clock.now_ms)
    assert standing is not None
    assert (standing.lane_state, standing.ahead) == ("active", 2)


async def test_a_job_that_came_back_before_its_lanes_floor_is_the_oldest(bench: Bench) -> None:
    first = await bench.add()
    bench.clock.advance(500)
    await bench.add_many(3)
    hand = bench.hand()
    job = await hand.take()
    assert job.id == first
    await hand.claim(1)  # the floor is behind both
    await hand.release(job)
    (queue,) = (await bench.store.count(queues=True)).queues
    assert queue.oldest_ready_at_ms == bench.clock.now_ms - 500
    newest = await bench.add()
    standing = await bench.store.inspect(newest, now_ms=bench.clock.now_ms)
    assert standing is not None
    assert standing.ahead == 3


async def test_an_idle_lane_is_idle_and_a_gated_one_waits(bench: Bench) -> None:
    await bench.declare(GateRule("limit:x", concurrency=1))
    ids = await bench.add_many(2, keys=("x",))
    done = await bench.add(task="plain", priority=0)
    hand = bench.hand()
    await hand.succeed(await hand.take())
    await hand.claim(2)
    await hand.claim(1)
    states = []
    for id in (done, ids[1]):
        standing = await bench.store.inspect(id, now_ms=bench.clock.now_ms)
        assert standing is not None
        states.append(standing.lane_state)
    assert states == ["idle", "waiting"]


async def test_dead_jobs_are_grouped_before_and_after_they_are_summed_up(bench: Bench) -> None:
    async def seen() -> list[tuple[str, int, str, str]]:
        causes = await bench.store.causes()
        assert await bench.store.causes("default") == causes
        assert await bench.store.causes("nowhere") == []
        return [(each.cause, each.count, each.type, each.message) for each in causes]

    ids = await bench.add_many(4)
    hand = bench.hand()
    for number, job in enumerate(await hand.claim(4)):
        bench.clock.advance(10)
        await hand.bury(job, cause="a" if number < 3 else "b", message=f"message {number}")
    expected = [("a", 3, "builtins.RuntimeError", "message 2"), ("b", 1, "builtins.RuntimeError", "message 3")]
    assert await seen() == expected
    for _ in range(3):
        bench.clock.advance(1_000)
        await bench.store.expire(now_ms=bench.clock.now_ms)
    assert await seen() == expected
    await bench.retry(ids[0], ids[3])
    assert await seen() == [("a", 2, "builtins.RuntimeError", "message 2")]


# -- where a search ends


async def test_large_arguments_end_a_page_before_they_fill_memory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "CANDIDATE_BYTES", 100_000)
    ids = [await bench.add(args=b'{"pad":"%s","n":%d}' % (b"x" * 30_000, number)) for number in range(20)]
    query = Query(terms=(Term("args.n", "0"),))
    page = await bench.store.find(query, now_ms=bench.clock.now_ms)
    assert (page.jobs, page.complete) == ((), False)
    assert page.cursor is not None
    found, number = await pages(bench, query)
    assert found == ids[:1]
    assert 3 <= number <= 8


async def test_a_slow_search_ends_a_page_and_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "LOOK_S", 0.0)
    rare = await bench.add(task="rare")
    await bench.add_many(300)
    found, number = await pages(bench, Query(terms=(Term("task", "rare"),)))
    assert found == [rare]
    assert number >= 4


async def test_a_job_that_is_named_is_found_whatever_lies_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "CANDIDATES", 10)
    named = await bench.add()
    await bench.add_many(50)
    page = await bench.store.find(Query(terms=(Term("id", id_text(named)),)), now_ms=bench.clock.now_ms)
    assert ([job.id for job in page.jobs], page.complete, page.cursor) == ([named], True, None)
    other = Query(frozenset({State.dead}), (Term("id", id_text(named)),))
    assert (await bench.store.find(other, now_ms=bench.clock.now_ms)).jobs == ()


async def test_an_id_is_found_by_an_odd_number_of_its_digits(bench: Bench) -> None:
    ids = [bench.id()[:14] + bytes((digit, 0xEF)) for digit in (0xAB, 0xBB, 0xAC)]
    await bench.put(*(bench.job(id=id) for id in ids))
    assert await bench.ids_ending_in("bef") == [ids[1], ids[0]]
    assert await bench.ids_ending_in("BEF") == [ids[1], ids[0]]
    assert await bench.ids_ending_in("abef") == [ids[0]]
    assert await bench.ids_ending_in(id_text(ids[2])[1:]) == [ids[2]]


async def test_no_states_are_no_jobs(bench: Bench) -> None:
    await bench.add()
    page = await bench.store.find(Query(frozenset()), now_ms=bench.clock.now_ms)
    assert (page.jobs, page.complete, page.cursor) == ((), True, None)


# -- spoilt records


async def test_a_spoilt_part_shows_itself(bench: Bench) -> None:
    id = await bench.add(tags=("vip",))
    assert isinstance(bench.store, PostgresStore)
    schema = (await bench.store._client()).schema
    shared(POSTGRES).ask(f"UPDATE {schema}.job SET extra = '\\xc1'")
    view = await bench.view(id)
    assert view.tags == ("undecodable",)
    page = await bench.store.find(Query(terms=(Term("tag", "undecodable"),)), now_ms=bench.clock.now_ms)
    assert [job.id for job in page.jobs] == [id]


# -- jobs by their key


@pytest.mark.parametrize("newest_first", [True, False])
async def test_jobs_of_several_tasks_are_found_by_the_key_that_they_share(bench: Bench, newest_first: bool) -> None:
    tasks = [f"t{number}" for number in range(5)]
    ids = [await bench.add(task=task, queue=f"q{number % 2}", unique=Unique("k")) for number, task in enumerate(tasks)]
    await bench.add(task="t0", unique=Unique("other"))
    query = Query(terms=(Term("unique", "k"),), limit=2, newest_first=newest_first)
    assert await pages(bench, query) == (ids[::-1] if newest_first else ids, 3)
