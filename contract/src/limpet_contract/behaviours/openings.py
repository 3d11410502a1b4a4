"""Behaviours of gates that open sooner than sleeping workers were told: one that can work then is woken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.lease import Claimed
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.behaviours.wakeups import SHORT_MS, wakes, woken_by
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.making import JobOptions

# The gate is one of the whole class, which keeps no list of who waits there, or one of single lanes, which does.
PLACES: Final = ("class", "lane")

Act = Callable[[Bench, Hand, list[Claimed]], Awaitable[object]]


async def _nothing(bench: Bench, busy: Hand, jobs: list[Claimed]) -> None:
    """All is said by the jobs that were claimed."""


async def _pause_and_hold(bench: Bench, busy: Hand, jobs: list[Claimed]) -> None:
    await bench.change(GateChange("limit:k", pause=Pause("ada", "why", bench.clock.now_ms), hold_ms=60_000))


class Way(NamedTuple):
    """How the gate "limit:k" is shut, how that changes, and in how many ms it opens before and after that."""

    rule: GateRule
    claimed: int  # jobs that a busy worker has of it
    act: Act
    told_ms: int | None
    sooner_ms: int
    before: Act = _nothing
    cost: int = 1


WAYS: Final[dict[str, Way]] = {
    "a slot falls free while the ceiling climbs": Way(
        GateRule("limit:k", concurrency=4),
        claimed=4,
        before=lambda bench, busy, jobs: busy.hold(jobs[0], "limit:k", 1_000),
        act=lambda bench, busy, jobs: busy.succeed(*jobs[1:]),
        told_ms=11_000,
        sooner_ms=1_000,
    ),
    "a job has spent less than it reserved": Way(
        GateRule("limit:k", interval_us=1_000_000),
        claimed=1,
        cost=60,
        act=lambda bench, busy, jobs: busy.settle(Succeed(jobs[0].id, jobs[0].token), spent={jobs[0].id: {"": 10}}),
        told_ms=60_000,
        sooner_ms=10_000,
    ),
    "a job ends under a ceiling, and its rate is still to wait for": Way(
        GateRule("limit:k", concurrency=1, interval_us=60_000_000),
        claimed=1,
        act=lambda bench, busy, jobs: busy.succeed(*jobs),
        told_ms=None,
        sooner_ms=60_000,
    ),
    "an operator allows more": Way(
        GateRule("limit:k", interval_us=3_600_000_000),
        claimed=1,
        act=lambda bench, busy, jobs: bench.change(
            GateChange("limit:k", rule=GateRule("limit:k", interval_us=600_000_000))
        ),
        told_ms=3_600_000,
        sooner_ms=600_000,
    ),
    "an operator resumes what is also held": Way(
        GateRule("limit:k", concurrency=1),
        claimed=0,
        before=_pause_and_hold,
        act=lambda bench, busy, jobs: bench.change(GateChange("limit:k", resume=True)),
        told_ms=None,
        sooner_ms=60_000,
    ),
    "an operator opens a breaker for less": Way(
        GateRule("limit:k"),
        claimed=0,
        before=lambda bench, busy, jobs: bench.change(GateChange("limit:k", trip_ms=3_600_000)),
        act=lambda bench, busy, jobs: bench.change(GateChange("limit:k", trip_ms=60_000)),
        told_ms=3_600_000,
        sooner_ms=60_000,
    ),
}


def options(place: str, cost: int) -> JobOptions:
    """Of jobs that the gate stops: it is one of their class, or of their lane."""
    return {"limits": ("k",), "cost": cost} if place == "class" else {"keys": ("k",), "cost": cost}


async def opens_in_ms(hand: Hand, *, slots: int = 1) -> int | None:
    """In how many ms a worker that finds nothing is to look again; it sleeps then."""
    await hand.beat()
    answer = await hand.ask(slots=slots)
    assert (answer.jobs, answer.again) == ((), False)
    return None if answer.next_at_ms is None else answer.next_at_ms - answer.now_ms


@asynchronous
class TestOpenings:
    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("name", WAYS)
    async def test_a_sleeper_is_told_when_a_gate_opens_sooner_than_it_knows(
        self, bench: Bench, name: str, place: str
    ) -> None:
        way = WAYS[name]
        await bench.declare(way.rule)
        await bench.add_many(way.claimed + 2, **options(place, way.cost))
        busy, sleeper = bench.hand("busy"), bench.hand("sleeper")
        jobs = await busy.claim(way.claimed) if way.claimed else []
        await way.before(bench, busy, jobs)
        assert await opens_in_ms(sleeper) == way.told_ms
        assert await wakes(sleeper, lambda: way.act(bench, busy, jobs))
        assert await opens_in_ms(sleeper) == way.sooner_ms
        bench.clock.advance(way.sooner_ms)
        assert len(await sleeper.claim()) == 1

    async def test_a_gate_that_opens_later_wakes_nobody(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", interval_us=60_000_000))
        await bench.add_many(3, limits=("k",))
        await bench.hand("busy").take()
        sleeper, later = bench.hand("sleeper"), GateChange("limit:k", hold_ms=90_000)
        assert await opens_in_ms(sleeper) == 60_000
        assert not (await woken_by(sleeper, lambda: bench.change(later), timeout_ms=SHORT_MS)).work

    @pytest.mark.parametrize("place", PLACES)
    async def test_of_two_sleepers_the_one_that_can_start_a_job_then_is_told(self, bench: Bench, place: str) -> None:
        await bench.declare(GateRule("limit:k", interval_us=1_000_000))
        await bench.add_many(3, **options(place, 60))
        full, free, busy = bench.hand("a"), bench.hand("b"), bench.hand("c")
        job = await busy.take()
        await opens_in_ms(full, slots=0)
        assert await opens_in_ms(free) == 60_000
        spent = {job.id: {"": 10}}
        assert await wakes(free, lambda: busy.settle(Succeed(job.id, job.token), spent=spent))
