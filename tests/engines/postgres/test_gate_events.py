"""Events reach the log in order, and nobody waits for it who must not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.state import State
from tests.engines.postgres.places import Place, a_place, soon, start
from tests.servers.installations import POSTGRES

LOG = "SELECT lp.lock(:LOG)"  # somebody writes to the log, and is not done yet
BREAKER = GateRule("breaker:b", breaker=BreakerRule(failures=1))
USD = GateRule("limit:usd", unit="usd", cap=10, period="day")


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


async def events(place: Place) -> list[str]:
    return [entry.kind for entry in await place.store.read("event")]


async def test_a_claim_does_not_wait_for_the_log_and_a_later_one_writes_what_it_had_to_say(place: Place) -> None:
    await place.declare(USD)
    await place.add_many(2, limits=("usd",), costs={"usd": 6})
    hand = place.hand()
    with place.holding(LOG):
        assert len(await soon(hand.claim(2))) == 1
        assert await soon(hand.claim(2)) == []  # it files what the first has posted, and posts it anew
        assert await events(place) == []
    assert await hand.claim(2) == []
    assert sorted(await events(place)) == ["budget.reached", "budget.short"]
    assert {entry.at_ms for entry in await place.store.read("event")} == {place.clock.now_ms}


async def test_who_ends_a_job_waits_for_the_log_and_holds_up_nobody_else(place: Place) -> None:
    await place.declare(BREAKER)
    await place.add(breaker="b")
    other = await place.add(task="other")
    hand = place.hand()
    (job,) = await hand.claim(1)
    with place.holding(LOG):
        failing = start(hand.fail(job))
        await place.until_waiting(1)
        assert await soon(place.hand("w2").ids(5)) == [other]
    await failing
    assert await events(place) == ["breaker.opened"]


async def test_a_sweep_that_has_more_to_do_does_not_wait_for_the_log(place: Place) -> None:
    """It goes on to jobs that somebody who waits for the log may hold."""
    await place.declare(BREAKER)
    await place.change(GateChange("breaker:b", trip_ms=0))
    await place.add(breaker="b")
    probe = await place.hand().take()
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        assert await place.joined.settle_on(line, probe.id, probe.token, now_ms=place.clock.now_ms)
        line.commit()
    place.clock.advance(60_000)
    with place.holding(LOG):
        await soon(place.store.expire(now_ms=place.clock.now_ms))
        assert await place.state(probe.id) is State.succeeded
    assert await events(place) == ["breaker.opened"]
    await place.hand().claim()
    assert await events(place) == ["breaker.opened", "breaker.closed"]
