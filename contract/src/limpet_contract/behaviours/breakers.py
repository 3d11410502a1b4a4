"""Behaviours of circuit breakers: they open, let one probe through, and close or open again."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import ErrorKind, RetryAfter
from limpet.core.gate import FOREVER_MS, BreakerRule, Gate, GateChange, GateRule
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import failure

KEY = "breaker:api"
RULE = GateRule(KEY, breaker=BreakerRule(failures=3, within_ms=60_000, cooldown_ms=30_000, probe_after_ms=10_000))


async def level(bench: Bench) -> Gate:
    gate = await bench.gate(KEY)
    assert gate is not None
    return gate


async def broken(bench: Bench, jobs: int = 10) -> None:
    """An open breaker with jobs behind it."""
    await bench.put(*(bench.job(breaker="api") for _ in range(jobs)), rules=[RULE])
    hand = bench.hand("breaking")
    for _ in range(3):
        await hand.fail(await hand.take(), delay_ms=3_600_000)
    assert (await level(bench)).breaker_open


@asynchronous
class TestBreaker:
    async def test_enough_failures_open_it_and_nothing_is_given(self, bench: Bench) -> None:
        await broken(bench)
        assert (await level(bench)).opened == 1
        hand = bench.hand()
        await hand.beat()
        answer = await hand.ask(10)
        assert (answer.jobs, answer.next_at_ms) == ((), bench.clock.now_ms + 10_000)
        bench.clock.advance(9_999)
        assert await hand.claim(10) == []

    async def test_failures_in_one_settlement_count_each(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(5)), rules=[RULE])
        hand = bench.hand()

        await hand.settle(*(RetryAfter(job.id, job.token, failure(), 60_000) for job in await hand.claim(3)))
        assert (await level(bench)).breaker_open

    async def test_other_jobs_do_not_wait_for_an_open_breaker(self, bench: Bench) -> None:
        await broken(bench, jobs=300)
        other = await bench.add(task="other", priority=9)
        assert await bench.hand().ids(5) == [other]

    @pytest.mark.parametrize("kind", ["transient", "timeout"])
    async def test_transient_failures_and_timeouts_count(self, bench: Bench, kind: ErrorKind) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(5)), rules=[RULE])
        hand = bench.hand()
        for _ in range(3):
            await hand.fail(await hand.take(), kind=kind, delay_ms=60_000)
        assert (await level(bench)).breaker_open

    async def test_permanent_failures_do_not_count(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(5)), rules=[RULE])
        hand = bench.hand()
        for _ in range(4):
            await hand.bury(await hand.take(), kind="permanent")
        assert not (await level(bench)).breaker_open

    async def test_a_buried_transient_failure_counts(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(5)), rules=[RULE])
        hand = bench.hand()
        for _ in range(3):
            await hand.bury(await hand.take(), kind="transient")
        assert (await level(bench)).breaker_open

    async def test_a_success_starts_the_count_anew(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(9)), rules=[RULE])
        hand = bench.hand()
        for _ in range(2):
            await hand.fail(await hand.take(), delay_ms=60_000)
        await hand.succeed(await hand.take())
        for _ in range(2):
            await hand.fail(await hand.take(), delay_ms=60_000)
        assert not (await level(bench)).breaker_open
        await hand.fail(await hand.take(), delay_ms=60_000)
        assert (await level(bench)).breaker_open

    async def test_pushback_is_neither_a_failure_nor_a_success(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(9)), rules=[RULE])
        hand = bench.hand()
        for _ in range(2):
            await hand.fail(await hand.take(), delay_ms=60_000)
            await hand.hold(await hand.take(), "limit:elsewhere", 60_000)
        assert not (await level(bench)).breaker_open
        await hand.fail(await hand.take(), delay_ms=60_000)
        assert (await level(bench)).breaker_open

    async def test_failures_outside_the_window_are_forgotten(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(9)), rules=[RULE])
        hand = bench.hand()
        for _ in range(4):
            await hand.fail(await hand.take(), delay_ms=3_600_000)
            bench.clock.advance(31_000)
        assert not (await level(bench)).breaker_open

    async def test_it_outlives_every_process_and_so_does_its_history(self, bench: Bench) -> None:
        await broken(bench)
        gate, events, hand = await level(bench), await bench.store.read("event"), bench.hand("new")
        later = await bench.other()
        if later.store is not bench.store:
            await bench.store.close()
        bench.store = hand.store = later.store
        assert await level(bench) == gate
        assert await bench.store.read("event") == events
        assert [entry.kind for entry in events] == ["breaker.opened"]
        assert await hand.claim(10) == []
        bench.clock.advance(10_000)
        probe = await hand.take()
        assert probe.probe
        await hand.succeed(probe)
        assert not (await level(bench)).breaker_open


@asynchronous
class TestProbe:
    async def test_half_open_lets_exactly_one_probe_through(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand = bench.hand()
        jobs = await hand.claim(10)
        assert [job.probe for job in jobs] == [True]
        assert await bench.hand("w2").claim(10) == []
        assert (await level(bench)).probe_token == jobs[0].token
        await hand.release(*jobs)

    async def test_a_probe_that_succeeds_closes_it(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand = bench.hand()
        await hand.succeed(await hand.take())
        assert not (await level(bench)).breaker_open
        jobs = await hand.claim(10)
        assert len(jobs) == 6
        assert not any(job.probe for job in jobs)

    async def test_a_probe_that_fails_opens_it_for_the_cooldown(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand = bench.hand()
        await hand.fail(await hand.take(), delay_ms=3_600_000)
        assert (await level(bench)).opened == 2
        bench.clock.advance(29_999)
        assert await hand.claim(10) == []
        bench.clock.advance(1)
        assert len(await hand.claim(10)) == 1
        await hand.leave()

    @pytest.mark.parametrize("end", ["release", "lose", "drop", "snooze", "bury", "force", "leave"])
    async def test_a_probe_that_proves_nothing_is_returned(self, bench: Bench, end: str) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand, other = bench.hand(), bench.hand("w2")
        job = await hand.take()
        assert await other.claim(10) == []
        if end == "force":
            await bench.cancel(job.id, force=True)
        elif end == "leave":
            await hand.leave()
        else:
            await hand.end(end, job)
        jobs = await other.claim(10)
        assert [job.probe for job in jobs] == [True]
        assert (await level(bench)).opened == 1
        await other.leave()

    @pytest.mark.parametrize("says", ["too fast", "no money"])
    async def test_a_probe_that_is_pushed_back_proves_nothing(self, bench: Bench, says: str) -> None:
        await bench.put(*(bench.job(breaker="api", limits=("calls",)) for _ in range(3)), rules=[RULE])
        await bench.change(GateChange(KEY, trip_ms=1_000))
        bench.clock.advance(1_000)
        hand = bench.hand()
        probe = await hand.take()
        await (hand.hold if says == "too fast" else hand.trip)(probe, "limit:calls", 60_000)
        gate = await level(bench)
        assert (gate.breaker_open, gate.probe_token, gate.opened) == (True, 0, 1)
        assert await hand.claim(3) == []
        bench.clock.advance(60_000)
        jobs = await hand.claim(3)
        assert [job.probe for job in jobs] == [True]
        await hand.succeed(*jobs)
        assert not (await level(bench)).breaker_open

    async def test_a_probe_of_a_silent_session_is_returned_by_the_sweep(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        other = bench.hand("w2")
        job = await bench.hand("silent").take()
        await bench.lose(job.id, other)
        assert [job.probe for job in await other.claim(10)] == [True]
        await other.leave()

    async def test_a_breaker_declared_anew_stays_open_and_its_probe_goes_by_the_new_numbers(self, bench: Bench) -> None:
        await broken(bench)
        by_share = GateRule(KEY, breaker=BreakerRule(cooldown_ms=5_000, rate=0.5, min_calls=1))
        await bench.put(bench.job(breaker="api"), rules=[by_share])
        hand = bench.hand()
        assert await hand.claim(10) == []
        bench.clock.advance(10_000)
        probe = await hand.take()
        await bench.put(bench.job(breaker="api"), rules=[RULE])
        await bench.put(bench.job(breaker="api"), rules=[by_share])
        await hand.fail(probe, delay_ms=3_600_000)
        assert (await level(bench)).open_until_ms == bench.clock.now_ms + 5_000
        bench.clock.advance(5_000)
        await hand.succeed(await hand.take())
        await hand.fail(await hand.take(), delay_ms=3_600_000)
        assert (await level(bench)).opened == 3

    async def test_a_straggler_from_before_the_opening_decides_nothing(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(9)), rules=[RULE])
        hand = bench.hand()
        straggler, *failing = await hand.claim(4)
        for job in failing:
            await hand.fail(job, delay_ms=3_600_000)
        bench.clock.advance(10_000)
        probe = await hand.take()
        await hand.succeed(straggler)
        gate = await level(bench)
        assert gate.breaker_open
        assert gate.probe_token == probe.token
        await hand.succeed(probe)
        assert not (await level(bench)).breaker_open

    async def test_a_probe_counts_against_the_slots(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand = bench.hand()
        assert await hand.claim(10, slots=0) == []
        assert len(await hand.claim(10, slots=1)) == 1
        await hand.leave()


@asynchronous
class TestBreakerByHand:
    async def test_a_tripped_breaker_stays_open_until_it_is_reset(self, bench: Bench) -> None:
        await bench.put(bench.job(breaker="api"), rules=[RULE])
        gate = (await bench.change(GateChange(KEY, trip_ms=FOREVER_MS)))[0]
        assert gate.breaker_open
        hand = bench.hand()
        assert await hand.claim() == []
        bench.clock.advance(365 * 86_400_000)
        assert await hand.claim() == []
        await bench.change(GateChange(KEY, reset=True))
        assert len(await hand.claim()) == 1

    async def test_a_breaker_tripped_for_a_while_lets_a_probe_through_after_it(self, bench: Bench) -> None:
        await bench.put(*(bench.job(breaker="api") for _ in range(3)), rules=[RULE])
        await bench.change(GateChange(KEY, trip_ms=5_000))
        hand = bench.hand()
        assert await hand.claim(5) == []
        bench.clock.advance(5_000)
        jobs = await hand.claim(5)
        assert [job.probe for job in jobs] == [True]
        await hand.succeed(*jobs)
        assert len(await hand.claim(5)) == 2

    @pytest.mark.parametrize(("how", "opens"), [("succeed", False), ("fail", True)])
    async def test_it_is_said_that_somebody_opened_it_until_its_probe_has_ended(
        self, bench: Bench, how: str, opens: bool
    ) -> None:
        await broken(bench)
        assert not (await level(bench)).by_hand
        gate = (await bench.change(GateChange(KEY, trip_ms=5_000)))[0]
        assert gate.by_hand
        bench.clock.advance(5_000)
        hand = bench.hand()
        probe = await hand.take()
        assert (await level(bench)).by_hand
        await hand.end(how, probe)
        gate = await level(bench)
        assert (gate.breaker_open, gate.by_hand) == (opens, False)
        await bench.change(GateChange(KEY, trip_ms=FOREVER_MS))
        assert (await level(bench)).by_hand
        assert not (await bench.change(GateChange(KEY, reset=True)))[0].by_hand

    async def test_a_reset_breaker_forgets_its_failures(self, bench: Bench) -> None:
        await broken(bench)
        await bench.change(GateChange(KEY, reset=True))
        hand = bench.hand()
        for _ in range(2):
            await hand.fail(await hand.take(), delay_ms=60_000)
        assert not (await level(bench)).breaker_open

    async def test_a_reset_while_a_probe_runs_lets_everyone_in(self, bench: Bench) -> None:
        await broken(bench)
        bench.clock.advance(10_000)
        hand = bench.hand()
        probe = await hand.take()
        await bench.change(GateChange(KEY, reset=True))
        assert len(await hand.claim(10)) == 6
        await hand.fail(probe, delay_ms=3_600_000)
        assert not (await level(bench)).breaker_open


@asynchronous
class TestRateBreaker:
    RULE = GateRule(KEY, breaker=BreakerRule(within_ms=60_000, probe_after_ms=10_000, rate=0.5, min_calls=10))

    async def run(self, bench: Bench, outcomes: str) -> None:
        """One job per letter: s succeeds, f fails."""
        await bench.put(*(bench.job(breaker="api") for _ in outcomes), rules=[self.RULE])
        hand = bench.hand()
        for outcome in outcomes:
            job = await hand.take()
            await (hand.succeed(job) if outcome == "s" else hand.fail(job, delay_ms=3_600_000))

    async def test_too_large_a_share_of_failures_opens_it(self, bench: Bench) -> None:
        await self.run(bench, "sfsfsfsfsf")
        assert (await level(bench)).breaker_open

    async def test_fewer_calls_than_the_minimum_prove_nothing(self, bench: Bench) -> None:
        await self.run(bench, "fffffffff")
        assert not (await level(bench)).breaker_open

    async def test_a_small_share_of_failures_is_borne(self, bench: Bench) -> None:
        await self.run(bench, "ssfssfssfssfssf")
        assert not (await level(bench)).breaker_open
