"""Pages and places in line, on every engine: each index in its order, cursors that stay, bounds that are admitted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Term
from limpet.stores.search import CANDIDATES
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def pages(bench: Bench, query: Query) -> list[bytes]:
    """All ids that a query finds, page by page."""
    found: list[bytes] = []
    for _ in range(1_000):
        page = await bench.store.find(query, now_ms=bench.clock.now_ms)
        found += [job.id for job in page.jobs]
        if page.cursor is None:
            return found
        query = Query(query.states, query.terms, query.limit, page.cursor, query.newest_first)
    raise AssertionError("the pages never end")


def one(state: State, *, newest_first: bool, limit: int = 3, terms: tuple[Term, ...] = ()) -> Query:
    return Query(frozenset({state}), terms, limit=limit, newest_first=newest_first)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("queues", [1, 7])
async def test_finished_jobs_of_all_queues_come_by_the_time_of_their_end(
    bench: Bench, queues: int, newest_first: bool
) -> None:
    hand, ended = bench.hand(), []
    for number in range(60):
        ended.append(await bench.add(queue=f"q{number * number % queues}"))
        await hand.succeed(await hand.take())
        bench.clock.advance(number % 3)
    views = {view.id: view for view in await bench.store.get(ended) if view is not None}
    by_time = sorted(ended, key=lambda id: (views[id].finished_at_ms, id), reverse=newest_first)
    assert await pages(bench, one(State.succeeded, newest_first=newest_first)) == by_time
    of_one = one(State.succeeded, newest_first=newest_first, terms=(Term("queue", "q0"),))
    assert await pages(bench, of_one) == [id for id in by_time if views[id].lane.queue == "q0"]
    assert await pages(bench, one(State.dead, newest_first=newest_first)) == []


async def test_many_finished_jobs_in_many_queues_are_all_found_once(bench: Bench) -> None:
    ids = [id for number in range(40) for id in await bench.add_many(50, queue=f"q{number % 13}")]
    hand = bench.hand()
    while jobs := await hand.claim(100):
        await hand.succeed(*jobs)
        bench.clock.advance(1)
    found = await pages(bench, one(State.succeeded, newest_first=True, limit=700))
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_scheduled_jobs_come_by_level_and_time(bench: Bench, newest_first: bool) -> None:
    expected = []
    for number in range(30):
        priority, delay_ms = number * 7 % 10, 1_000 + number * 11 % 5
        id = await bench.add(priority=priority, delay_ms=delay_ms)
        expected.append((priority, delay_ms, number, id))
    expected.sort(reverse=newest_first)
    assert await pages(bench, one(State.scheduled, newest_first=newest_first)) == [id for *_, id in expected]


async def test_a_job_that_was_moved_is_scheduled_once(bench: Bench) -> None:
    id = await bench.add(delay_ms=1_000)
    hand = bench.hand()
    bench.clock.advance(1_000)
    await hand.snooze(await hand.take(), 5_000)
    other = await bench.add(delay_ms=60_000)
    await bench.retry(other)
    assert await pages(bench, one(State.scheduled, newest_first=True)) == [id]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_blocked_and_running_jobs_have_indexes_of_their_own(bench: Bench, newest_first: bool) -> None:
    ids = await bench.add_many(8)
    blocked = [await bench.add(after=(ids[0],)) for _ in range(8)]
    first, second = bench.hand("w1"), bench.hand("w2")
    running = [job.id for hand in (first, second, first) for job in await hand.claim(2)]
    await first.succeed(*await first.claim(1))
    expected = blocked[::-1] if newest_first else blocked
    assert await pages(bench, one(State.blocked, newest_first=newest_first)) == expected
    expected = running[::-1] if newest_first else running
    assert await pages(bench, one(State.running, newest_first=newest_first)) == expected


async def test_a_page_says_when_it_has_looked_at_enough_and_looks_at_no_older_ends(bench: Bench) -> None:
    old = await bench.add(task="rare")
    many = [id for _ in range(CANDIDATES // 5_000) for id in await bench.add_many(5_000)]
    query = Query(terms=(Term("task", "rare"),))
    page = await bench.store.find(query, now_ms=bench.clock.now_ms)
    assert (page.jobs, page.complete) == ((), False)
    assert await pages(bench, Query(terms=query.terms, cursor=page.cursor)) == [old]
    assert await bench.ids_ending_in(id_text(old)[-20:]) == [old]
    await bench.store.cancel(many, "", now_ms=bench.clock.now_ms)
    bench.clock.advance(10_000)
    await bench.store.cancel([old], "", now_ms=bench.clock.now_ms)
    for newest_first in (True, False):
        lately = one(State.cancelled, newest_first=newest_first, terms=(Term("finished", "5000", "<"),))
        page = await bench.store.find(lately, now_ms=bench.clock.now_ms)
        assert ([job.id for job in page.jobs], page.complete, page.cursor) == ([old], True, None)


async def test_a_cursor_of_another_query_or_none_at_all_is_refused(bench: Bench) -> None:
    await bench.add_many(3)
    page = await bench.store.find(Query(limit=1), now_ms=bench.clock.now_ms)
    assert page.cursor is not None
    for wrong in ("", "garbage", "AAAA", page.cursor[:-4], "kqZsZWRnZXKhYQ==", "kqJpZKFh"):
        with pytest.raises(InvalidOption):
            await bench.store.find(Query(limit=1, cursor=wrong), now_ms=bench.clock.now_ms)
    query = Query(frozenset({State.dead}), cursor=page.cursor)
    with pytest.raises(InvalidOption, match="another query"):
        await bench.store.find(query, now_ms=bench.clock.now_ms)


async def test_large_arguments_are_searched_and_shown(bench: Bench) -> None:
    large = b'{"pad":"%s","to":"ann"}' % (b"x" * 5_000)
    id = await bench.add(args=large)
    await bench.add(args=b'{"to":"bob"}')
    page = await bench.store.find(Query(terms=(Term("args.to", "ann"),)), now_ms=bench.clock.now_ms)
    assert [(job.id, job.args) for job in page.jobs] == [(id, large)]


async def oldest(bench: Bench, queue: str = "default") -> int | None:
    views = {view.queue: view for view in (await bench.store.count(queues=True)).queues}
    return views[queue].oldest_ready_at_ms


async def test_the_oldest_ready_job_is_known_however_lanes_were_worked_off(bench: Bench) -> None:
    hand, start_ms = bench.hand(), bench.clock.now_ms
    for _ in range(5):
        for tenant in range(20):
            await bench.add(tenant=f"g{tenant}")
        bench.clock.advance(100)
    for number in range(5):
        assert await oldest(bench) == start_ms + number * 100
        jobs = await hand.claim(20)
        assert {job.due_at_ms for job in jobs} == {start_ms + number * 100}
        await hand.succeed(*jobs)
    assert await oldest(bench) is None
    await bench.add(tenant="g3")
    assert await oldest(bench) == bench.clock.now_ms


async def test_jobs_that_left_their_lane_are_not_the_oldest(bench: Bench) -> None:
    ids = await bench.add_many(10)
    bench.clock.advance(500)
    await bench.add()
    await bench.cancel(*ids)
    assert await oldest(bench) == bench.clock.now_ms
    hand = bench.hand()
    job = await hand.take()
    assert await oldest(bench) is None
    bench.clock.advance(500)
    await hand.release(job)
    assert await oldest(bench) == bench.clock.now_ms - 500


async def test_those_that_left_are_not_ahead(bench: Bench) -> None:
    ids = await bench.add_many(600)
    await bench.cancel(*ids[:300])
    hand = bench.hand()
    taken = await hand.claim(100)
    standing = await bench.store.inspect(ids[-1], now_ms=bench.clock.now_ms)
    assert standing is not None
    assert standing.ahead == 199
    await hand.release(*taken)
    standing = await bench.store.inspect(ids[-1], now_ms=bench.clock.now_ms)
    assert standing is not None
    assert standing.ahead == 299


async def test_more_than_a_thousand_ahead_are_not_counted(bench: Bench) -> None:
    ids = await bench.add_many(1_500)
    standing = await bench.store.inspect(ids[-1], now_ms=bench.clock.now_ms)
    assert standing is not None
    assert (standing.ahead, standing.ahead_capped) == (1_000, True)


# -- a search that is slow


def hurry(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time at all for a page, and small steps."""
    room = import_module(f"limpet.stores.{bench.store.features.name}.find")
    for name, value in (("LOOK_S", 0.0), ("SURE", 100), ("AT_ONCE", 64)):
        monkeypatch.setattr(room, name, value, raising=False)  # not every engine has a least number, or small steps


async def test_a_slow_search_ends_a_page_and_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(bench, monkeypatch)
    rare = await bench.add(task="rare")
    await bench.add_many(500)
    query = Query(terms=(Term("task", "rare"),))
    first = await bench.store.find(query, now_ms=bench.clock.now_ms)
    assert (first.jobs, first.complete) == ((), False)
    assert first.cursor is not None
    assert await pages(bench, query) == [rare]


async def test_what_a_flow_names_is_found_however_slowly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(bench, monkeypatch)
    flow = bench.id()
    await bench.add_many(400, flow=flow)
    rare = await bench.add(flow=flow, task="rare")
    query = Query(terms=(Term("flow", id_text(flow)), Term("task", "rare")), newest_first=False)
    page = await bench.store.find(query, now_ms=bench.clock.now_ms)
    assert ([job.id for job in page.jobs], page.complete, page.cursor) == ([rare], True, None)
