"""Behaviours of rate limits: a bucket that starts full, whole numbers only, and a promise over any span of time."""

from __future__ import annotations

import pytest

from limpet.core.gate import GateChange, GateRule
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.seeds import chance_of

# (interval in µs, burst, cost of each job, [(wait in ms, how many of 20 jobs are admitted then)])
VECTORS = {
    "one per second": (1_000_000, 1, 1, [(0, 1), (999, 0), (1, 1), (1_000, 1), (2_500, 1)]),
    "burst then rate": (100_000, 3, 1, [(0, 3), (99, 0), (1, 1), (100, 1), (250, 2), (50, 1), (1_000, 3)]),
    "faster than the clock": (200, 50, 1, [(0, 20)]),
    "two and a half per ms": (400, 5, 1, [(0, 5), (1, 2), (1, 3), (1, 2), (10, 5)]),
    "a third of a second": (333_333, 2, 1, [(0, 2), (333, 0), (1, 1), (333, 1), (10_000, 2)]),
    "cost two of four": (100_000, 4, 2, [(0, 2), (100, 1), (99, 0), (101, 1), (100, 0)]),
    "cost beyond the burst": (100_000, 2, 5, [(0, 1), (399, 0), (1, 1), (499, 0), (1, 1)]),
}


@asynchronous
class TestRate:
    @pytest.mark.parametrize("vector", VECTORS)
    async def test_a_bucket_admits_exactly_what_the_arithmetic_says(self, bench: Bench, vector: str) -> None:
        interval_us, burst, cost, steps = VECTORS[vector]
        await bench.declare(GateRule("limit:r", interval_us=interval_us, burst=burst))
        ids = await bench.add_many(20, limits=("r",), cost=cost)
        hand, admitted = bench.hand(), []
        for wait_ms, expected in steps:
            bench.clock.advance(wait_ms)
            given = await hand.claim(20)
            assert len(given) == expected, f"after {wait_ms} ms"
            admitted += [job.id for job in given]
        assert admitted == ids[: len(admitted)]

    async def test_an_empty_claim_says_when_the_next_token_is_there(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=250_000, burst=2))
        await bench.add_many(5, limits=("r",))
        hand = bench.hand()
        assert len(await hand.claim(5)) == 2
        bench.clock.advance(100)
        await hand.beat()
        answer = await hand.ask(5)
        assert answer.jobs == ()
        assert answer.next_at_ms == bench.clock.now_ms + 150

    async def test_each_key_has_a_bucket_of_its_own(self, bench: Bench) -> None:
        rules = [GateRule(f"limit:c:{n}", interval_us=60_000_000, burst=2) for n in range(3)]
        jobs = [bench.job(keys=(f"c:{n % 3}",)) for n in range(15)]
        await bench.put(*jobs, rules=rules)
        assert sorted(await bench.hand().ids(20)) == [job.id for job in jobs[:6]]

    async def test_a_parked_crowd_holds_nobody_back(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=60_000_000, burst=1))
        await bench.add_many(500, limits=("r",), priority=0)
        plain = await bench.add(task="plain", priority=9)
        hand = bench.hand()
        await hand.take()
        assert await hand.ids(5) == [plain]

    @pytest.mark.parametrize("stop", ["held", "too dear"])
    async def test_keys_that_are_shut_all_at_once_are_set_aside_over_several_claims(
        self, bench: Bench, stop: str
    ) -> None:
        """In one claim that would take longer than a caller waits for its answer, and be undone."""
        keys = [f"limit:c:{n}" for n in range(600)]
        rules = [GateRule(key, cap=1, period="day") for key in keys]
        cost = 1 if stop == "held" else 2
        await bench.put(*(bench.job(keys=(f"c:{n}",), cost=cost) for n in range(600)), rules=rules)
        if stop == "held":
            await bench.change(*(GateChange(key, hold_ms=60_000) for key in keys))
        hand = bench.hand()
        await hand.beat()
        answers = [await hand.ask(10)]
        while answers[-1].again:
            answers.append(await hand.ask(10))
        assert not any(answer.jobs for answer in answers)
        assert 2 <= len(answers) <= 5
        urgent = await bench.add(priority=0)
        assert await hand.ids(10) == [urgent]

    async def test_a_parked_lane_comes_back_by_the_passing_of_time_alone(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=1_000_000, burst=1))
        ids = await bench.add_many(4, limits=("r",))
        hand, done = bench.hand(), []
        for _ in range(4):
            done += await hand.ids(10)
            assert await hand.claim(10) == []
            bench.clock.advance(1_000)
        assert done == ids

    async def test_a_job_released_before_it_started_gives_its_token_back(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=60_000_000, burst=1))
        await bench.add_many(2, limits=("r",))
        hand = bench.hand()
        await hand.release(await hand.take(), started=False)
        assert len(await hand.claim(5)) == 1
        assert await hand.claim(5) == []

    @pytest.mark.parametrize("pushed_back", [False, True])
    @pytest.mark.parametrize("waited_ms", [0, 400])
    async def test_jobs_that_are_released_together_unstarted_leave_a_rate_as_if_it_had_stood_still_meanwhile(
        self, bench: Bench, waited_ms: int, pushed_back: bool
    ) -> None:
        await bench.declare(GateRule("limit:r", interval_us=100_000, burst=20, floor=100, climb_ms=1_000_000))
        await bench.add_many(15, limits=("r",))
        hand = bench.hand()
        if pushed_back:
            await hand.hold(await hand.take(), "limit:r", 1_000)
            bench.clock.advance(60_000)
        assert len(await hand.claim(2)) == 2
        before, jobs = await bench.gate("limit:r"), await hand.claim(8)
        assert len(jobs) == 8
        bench.clock.advance(waited_ms)
        await hand.release(*jobs)
        after = await bench.gate("limit:r")
        assert before is not None
        assert after is not None
        assert after.full_at_us == before.full_at_us + waited_ms * 1000

    @pytest.mark.parametrize("end", ["release", "fail", "lose"])
    async def test_a_job_that_had_started_has_spent_its_token(self, bench: Bench, end: str) -> None:
        await bench.declare(GateRule("limit:r", interval_us=60_000_000, burst=1))
        await bench.add_many(2, limits=("r",))
        hand = bench.hand()
        job = await hand.take()
        if end == "release":
            await hand.release(job, started=True)
        elif end == "fail":
            await hand.fail(job)
        else:
            await hand.lose(job)
        assert await hand.claim(5) == []
        bench.clock.advance(60_000)
        assert len(await hand.claim(5)) == 1

    async def test_a_rate_and_a_ceiling_on_one_key_are_both_kept(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", concurrency=2, interval_us=1_000_000, burst=3))
        await bench.add_many(6, limits=("r",))
        hand = bench.hand()
        running = await hand.claim(6)
        assert len(running) == 2
        await hand.succeed(*running)
        assert len(await hand.claim(6)) == 1
        assert await hand.claim(6) == []

    async def test_a_job_stopped_by_one_limit_spends_nothing_of_another(self, bench: Bench) -> None:
        rate, slot = GateRule("limit:rate", interval_us=60_000_000, burst=3), GateRule("limit:slot", concurrency=1)
        await bench.declare(rate, slot)
        await bench.add_many(4, limits=("rate", "slot"))
        hand = bench.hand()
        for _ in range(3):
            job = await hand.take()
            assert await hand.claim(5) == []
            await hand.succeed(job)
        assert await hand.claim(5) == []

    async def test_a_faster_rate_is_heeded_at_once(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=3_600_000_000, burst=1))
        await bench.add_many(10, limits=("r",))
        hand = bench.hand()
        assert len(await hand.claim(10)) == 1
        assert await hand.claim(10) == []
        await bench.change(GateChange("limit:r", rule=GateRule("limit:r", interval_us=1_000, burst=4)))
        assert len(await hand.claim(10)) == 3
        bench.clock.advance(1)
        assert len(await hand.claim(10)) == 1
        await bench.change(GateChange("limit:r", rule=GateRule("limit:r")))
        assert len(await hand.claim(10)) == 5

    @pytest.mark.parametrize("seed", range(3))
    async def test_starts_in_any_span_never_exceed_burst_plus_rate_times_span(self, bench: Bench, seed: int) -> None:
        rng = chance_of(seed)
        interval_ms, burst = rng.choice([(7, 3), (40, 1), (100, 10)])
        await bench.declare(GateRule("limit:r", interval_us=interval_ms * 1_000, burst=burst))
        await bench.put(*(bench.job(limits=("r",), tenant=rng.choice(["a", "b", None])) for _ in range(200)))
        hands = [bench.hand("one"), bench.hand("two")]
        starts: list[int] = []
        for _ in range(120):
            bench.clock.advance(rng.choice([0, 1, 3, interval_ms, 2 * interval_ms]))
            jobs = await rng.choice(hands).claim(rng.randint(1, 12))
            starts += [bench.clock.now_ms] * len(jobs)
            if jobs and rng.random() < 0.7:
                await hands[0].succeed(*jobs)
        assert len(starts) > 40
        for first, start_ms in enumerate(starts):
            for last in range(first, len(starts)):
                span_ms = starts[last] - start_ms
                assert last - first + 1 <= burst + span_ms // interval_ms
        assert len(starts) >= min(200, (starts[-1] - starts[0]) // interval_ms // 2), "the rate was not used"
