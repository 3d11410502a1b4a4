"""Behaviours after pushback: a key that was held starts slowly, and an adaptive one learns its pace."""

from __future__ import annotations

import pytest

from limpet.core.gate import FULL_PACE, GateChange, GateRule
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand


async def start(hand: Hand) -> int:
    """How many jobs a worker with room for many gets now."""
    return len(await hand.claim(20))


@asynchronous
class TestPushBack:
    async def test_a_ceiling_begins_again_with_one_job_and_climbs_by_time_alone(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=4))
        await bench.add_many(12, limits=("k",))
        hand = bench.hand()
        one, *others = await hand.claim(4)
        await hand.hold(one, "limit:k", 1_000)
        await hand.succeed(*others)
        bench.clock.advance(1_000)
        assert await start(hand) == 1
        answer = await hand.ask(20)
        assert (answer.jobs, answer.next_at_ms) == ((), bench.clock.now_ms + 5_000)
        bench.clock.advance(5_000)
        assert await start(hand) == 1
        bench.clock.advance(5_000)
        assert await start(hand) == 2

    async def test_lanes_that_wait_at_a_slow_key_go_on_by_time_alone(self, bench: Bench) -> None:
        rule = GateRule("limit:k", concurrency=4)
        jobs = [bench.job(keys=("k",), tenant=f"g{n % 6}") for n in range(18)]
        await bench.put(*jobs, rules=[rule])
        hand = bench.hand()
        one, *others = await hand.claim(4)
        await hand.hold(one, "limit:k", 1_000)
        await hand.succeed(*others)
        started = []
        bench.clock.advance(1_000)
        for _ in range(5):
            started.append(await start(hand))
            assert await start(hand) == 0
            bench.clock.advance(2_500)
        assert started == [1, 0, 1, 1, 1]

    @pytest.mark.parametrize("limits", [(), ("k",)])
    async def test_a_key_without_numbers_begins_again_with_one_job_and_counts_nobody_in_the_end(
        self, bench: Bench, limits: tuple[str, ...]
    ) -> None:
        await bench.add_many(60, limits=limits)
        hand, other = bench.hand(), bench.hand("w2")
        one, *others = await hand.claim(20)
        await hand.hold(one, "limit:k" if limits else "task:work", 1_000)
        await hand.succeed(*others)
        bench.clock.advance(1_000)
        (first,) = await hand.claim(20)
        await other.beat()
        answer = await other.ask(20)
        assert (answer.jobs, answer.next_at_ms) == ((), bench.clock.now_ms + 1_000)
        await hand.succeed(first)
        assert len(await other.claim(20)) == 1
        bench.clock.advance(5_000)
        assert await start(hand) == 9
        assert await start(other) == 0
        bench.clock.advance(5_000)
        assert [await start(hand), await start(other)] == [20, 10]

    async def test_a_rate_begins_again_with_one_token(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", interval_us=1_000_000, burst=5))
        await bench.add_many(12, limits=("k",))
        hand = bench.hand()
        await hand.hold(await hand.take(), "limit:k", 60_000)
        bench.clock.advance(60_000)
        assert [await start(hand), await start(hand)] == [1, 0]
        bench.clock.advance(2_000)
        assert await start(hand) == 2

    async def test_an_adaptive_rate_goes_half_as_fast_and_climbs(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", interval_us=1_000_000, burst=8, floor=100, climb_ms=1_000_000))
        await bench.add_many(40, limits=("k",))
        hand = bench.hand()
        await hand.hold(await hand.take(), "limit:k", 1_000)
        bench.clock.advance(1_000)
        starts = 0
        for _ in range(20):
            starts += await start(hand)
            bench.clock.advance(1_000)
        assert starts in (10, 11)
        bench.clock.advance(1_000_000)
        assert await start(hand) == 8

    async def test_jobs_of_one_burst_cut_the_pace_once(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=8, floor=125, climb_ms=1_000_000))
        await bench.add_many(9, limits=("k",))
        hand = bench.hand()
        for job in await hand.claim(8):
            await hand.hold(job, "limit:k", 1_000)
        gate = await bench.gate("limit:k")
        assert gate is not None
        assert gate.pace == FULL_PACE // 2
        bench.clock.advance(1_000)
        jobs = await hand.claim(9)
        assert len(jobs) == 4
        for job in jobs:
            await hand.hold(job, "limit:k", 1_000)
        bench.clock.advance(1_000)
        assert len(await hand.claim(9)) == 2

    async def test_what_the_other_side_allows_is_a_ceiling_for_an_adaptive_limit(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=8, floor=125))
        await bench.add_many(9, limits=("k",))
        await bench.change(GateChange("limit:k", ceiling=250))
        hand = bench.hand()
        assert await start(hand) == 2
        await bench.change(GateChange("limit:k", ceiling=500))
        assert await start(hand) == 2

    async def test_a_person_resets_the_pace(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=8, floor=125, climb_ms=1_000_000))
        await bench.add_many(9, limits=("k",))
        hand = bench.hand()
        await hand.hold(await hand.take(), "limit:k", 60_000)
        await bench.change(GateChange("limit:k", reset=True))
        assert await start(hand) == 8

    @pytest.mark.parametrize("adaptive", [False, True])
    async def test_only_an_adaptive_limit_tells_that_it_goes_slower(self, bench: Bench, adaptive: bool) -> None:
        await bench.declare(GateRule("limit:k", concurrency=8, floor=125 if adaptive else None))
        await bench.add_many(9, limits=("k",))
        hand = bench.hand()
        await hand.hold(await hand.take(), "limit:k", 60_000)
        kinds = [entry.kind for entry in await bench.store.read("event")]
        assert kinds == ["limit.held", "limit.slowed"] if adaptive else ["limit.held"]
