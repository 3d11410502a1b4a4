"""Whoever shuts a gate and whoever claims meet at the door: nothing is handed out after a gate was seen shut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

import psycopg
import pytest

from limpet.core.endings.transition import Hold, RetryAfter, Succeed, Transition
from limpet.core.gate import BreakerRule, GateChange, GateRule, Pause
from limpet.core.jobs.lease import Claimed
from limpet.stores.postgres.settle import SETTLE
from limpet_contract.hand import failure
from tests.engines.postgres.places import Place, a_place, soon, start
from tests.engines.postgres.races import settle_columns
from tests.servers.installations import POSTGRES

BREAKER: Final = GateRule("breaker:api", breaker=BreakerRule(failures=2))
CLAIM: Final = """SELECT cardinality((c.jobs).ids)
FROM lp.claim_1(%s, 'fetcher', 1, 3, 3, NULL, NULL, '{}', '{}', %s) AS c"""


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


async def one_failed(place: Place) -> Claimed:
    """Of many jobs one has failed and one runs: should it fail, its breaker opens."""
    await place.put(*(place.job(breaker="api") for _ in range(10)), rules=[BREAKER])
    hand = place.hand()
    one, two = await hand.claim(2)
    await hand.settle(failed(one))
    return two


def failed(job: Claimed) -> RetryAfter:
    return RetryAfter(job.id, job.token, failure(), 3_600_000)


def pushed_back(job: Claimed) -> Hold:
    return Hold(job.id, job.token, "task:work", 3_600_000, "429")


def broke(job: Claimed) -> Hold:
    return Hold(job.id, job.token, "task:work", 3_600_000, "no money left", trips=True)


def claimed(place: Place, line: psycopg.Connection[Any], session: str) -> int:
    """How many jobs a claim of up to three gives that is not committed yet."""
    found = line.execute(place.sql(CLAIM), (session, place.clock.now_ms)).fetchone()
    assert found is not None
    return int(found[0] or 0)


Shutting = Callable[[Place, Claimed], Coroutine[Any, Any, object]]


def settling(end: Callable[[Claimed], Transition]) -> Shutting:
    return lambda place, job: place.hand().settle(end(job))


def changing(change: GateChange) -> Shutting:
    return lambda place, job: place.change(change)


SHUTTING: Final = {
    "fails": settling(failed),
    "is pushed back": settling(pushed_back),
    "has no money": settling(broke),
    "pause": changing(GateChange("queue:default", pause=Pause("ada", "lunch", 0))),
    "trip": changing(GateChange("breaker:api", trip_ms=3_600_000)),
}


@pytest.mark.parametrize("shutting", SHUTTING.values(), ids=SHUTTING)
async def test_who_shuts_a_gate_waits_for_the_claim_that_saw_it_open(place: Place, shutting: Shutting) -> None:
    job, claimer = await one_failed(place), place.hand("claimer")
    await claimer.beat()
    with place.holding() as line:
        assert claimed(place, line, "claimer") == 3
        shut = start(shutting(place, job))
        await place.until_waiting(1)
        line.commit()
    await soon(shut)
    assert (await claimer.ask(5)).jobs == ()


async def test_a_claim_waits_for_a_settlement_that_shuts_a_gate_and_is_not_committed(place: Place) -> None:
    job, claimer = await one_failed(place), place.hand("claimer")
    await claimer.beat()
    with place.holding() as line:
        values = ("w1", 1_000_000, *settle_columns([pushed_back(job)]), place.clock.now_ms)
        line.execute(place.sql(SETTLE), values)
        claim = start(claimer.ask(5))
        await place.until_waiting(1)
        line.commit()
    assert (await soon(claim)).jobs == ()


@pytest.mark.parametrize("end", [failed, lambda job: Succeed(job.id, job.token)], ids=["fails", "succeeds"])
async def test_who_shuts_nothing_waits_for_no_claim(place: Place, end: Callable[[Claimed], Transition]) -> None:
    rule = GateRule("breaker:api", breaker=BreakerRule(failures=3))
    await place.put(*(place.job(breaker="api") for _ in range(10)), rules=[rule])
    hand, claimer = place.hand(), place.hand("claimer")
    one, two = await hand.claim(2)
    await hand.settle(failed(one))
    await claimer.beat()
    with place.holding() as line:
        assert claimed(place, line, "claimer") == 3
        assert [answer.shut for answer in await soon(hand.settle(end(two)))] == [()]
        line.commit()
