"""Budgets and costs by unit where the contract does not look: every way in, very large numbers, when to ask again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest
from msgspec.structs import replace

from limpet.core.endings.transition import Succeed
from limpet.core.errors import InvalidOption
from limpet.core.gate import MOST, GateChange, GateRule
from limpet.core.jobs.view import Retention
from tests.engines.postgres.places import Place, a_place
from tests.servers.installations import POSTGRES

USD = GateRule("limit:usd", unit="usd", cap=10, period="day")


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


@pytest.mark.parametrize("way", ["in a transaction of the caller's own", "through an outbox"])
@pytest.mark.parametrize("flow", [False, True])
async def test_costs_count_whichever_way_jobs_come(place: Place, way: str, flow: bool) -> None:
    now_ms, id = place.clock.now_ms, place.id()
    jobs = [place.job(limits=("usd",), costs={"usd": 4}, flow=id if flow else None) for _ in range(3)]
    if way == "through an outbox":
        await place.store.relay("source", 1, jobs, [USD], now_ms=now_ms)
    else:
        with contextlib.closing(psycopg.connect(place.server.url)) as line:
            await place.joined.enqueue_on(line, jobs, [USD], now_ms=now_ms)
            line.commit()
    assert await place.hand().ids(3) == [job.id for job in jobs[:2]]


async def test_jobs_of_a_task_with_a_budget_are_claimed_only_to_start_at_once(place: Place) -> None:
    await place.change(GateChange("task:t", rule=GateRule("task:t", cap=10, period="day")))
    await place.add_many(3, task="t", tenant="a")
    await place.add_many(3, task="t", tenant="b")
    hand = place.hand()
    assert await hand.claim(4, slots=0) == []
    assert len((await hand.ask(4, slots=3)).jobs) == 3


async def test_a_cost_that_no_number_here_can_hold_is_refused(place: Place) -> None:
    await place.add(costs={"usd": 2**53})
    with pytest.raises(InvalidOption, match=r"item 1 costs 9,007,199,254,740,993 of 'usd'"):
        await place.put(place.job(), place.job(costs={"usd": 2**53 + 1}))


async def test_very_large_costs_stop_nobody_who_claims(place: Place) -> None:
    most = {"usd": 2**53}
    await place.declare(GateRule("limit:usd", concurrency=2_000, unit="usd", cap=2**62, period="day"))
    await place.declare(GateRule("limit:often", interval_us=2**40, burst=2**62, unit="usd"))
    await place.add_many(300, limits=("usd", "often"), costs=most)
    hand = place.hand()
    jobs = await hand.claim(300)
    assert len(jobs) == 300
    await hand.settle(*(Succeed(job.id, job.token) for job in jobs), spent={job.id: {"usd": 2**80} for job in jobs})
    gate = await place.gate("limit:usd")
    assert gate is not None
    assert gate.spent == MOST


async def test_a_job_that_comes_again_costs_what_it_did_and_is_forgotten_as_a_whole(place: Place) -> None:
    job = place.job(costs={"usd": 3})
    await place.put(job, place.job())
    (again,) = await place.put(replace(job, costs={"usd": 4}))
    assert again.existing
    assert place.ask("SELECT costs FROM lp.cost_job WHERE id = %s", job.id) == [({"usd": 3},)]
    await place.hand().drain()
    while await place.store.prune(Retention(succeeded_ms=0), now_ms=place.clock.now_ms):
        pass
    assert place.ask("SELECT id FROM lp.cost_job") == []
