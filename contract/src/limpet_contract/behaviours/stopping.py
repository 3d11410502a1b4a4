"""Behaviours of gates that shut: the settlement that shuts one says so, and nothing more comes to run under it."""

from __future__ import annotations

import asyncio

import pytest

from limpet.core.endings.transition import Bury, Hold, RetryAfter, Succeed
from limpet.core.gate import BreakerRule, GateChange, GateRule, is_shut
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand, failure

KEY = "breaker:api"
RULE = GateRule(KEY, breaker=BreakerRule(failures=3, cooldown_ms=30_000, probe_after_ms=10_000))
LIMIT = GateRule("limit:api", concurrency=100)


async def behind(bench: Bench, jobs: int = 10) -> Hand:
    """A worker beside jobs of one breaker and one limit."""
    await bench.put(*(bench.job(breaker="api", limits=("api",)) for _ in range(jobs)), rules=[RULE, LIMIT])
    return bench.hand()


@asynchronous
class TestStopping:
    async def test_the_failure_that_opens_a_breaker_names_it(self, bench: Bench) -> None:
        hand = await behind(bench)
        one, two, three, late, other = await hand.claim(5)
        assert [(await hand.fail(job, delay_ms=60_000)).shut for job in (one, two)] == [(), ()]
        assert (await hand.fail(three, delay_ms=60_000)).shut == (KEY,)
        assert (await hand.fail(late, delay_ms=60_000)).shut == (KEY,), "it is open, whichever outcome opened it"
        assert (await hand.bury(other, kind="timeout")).shut == (KEY,)

    async def test_of_one_settlement_every_failure_names_what_is_shut_in_the_end(self, bench: Bench) -> None:
        hand = await behind(bench)
        one, two, three, four, five = await hand.claim(5)
        answers = await hand.settle(
            RetryAfter(one.id, one.token, failure(), 60_000),
            Succeed(two.id, two.token - 1),
            Bury(three.id, three.token, failure("permanent")),
            Bury(four.id, four.token, failure("timeout")),
            RetryAfter(five.id, five.token, failure(), 0),
        )
        assert [(each.answer, each.shut) for each in answers] == [
            ("done", (KEY,)),
            ("stale", ()),
            ("done", ()),
            ("done", (KEY,)),
            ("done", (KEY,)),
        ]

    async def test_a_breaker_that_a_later_success_of_the_call_keeps_closed_is_not_named(self, bench: Bench) -> None:
        hand = await behind(bench)
        one, two, three = await hand.claim(3)
        answers = await hand.settle(
            RetryAfter(one.id, one.token, failure(), 60_000),
            RetryAfter(two.id, two.token, failure(), 60_000),
            Succeed(three.id, three.token),
        )
        assert [each.shut for each in answers] == [(), (), ()]

    async def test_pushback_names_the_gate_it_holds_and_no_other_end_does(self, bench: Bench) -> None:
        hand = await behind(bench)
        held, own, spent, fine, dropped, back = await hand.claim(6)
        assert (await hand.hold(held, "limit:api", 60_000)).shut == ("limit:api",)
        assert (await hand.hold(own, "task:work", 60_000)).shut == ("task:work",)
        assert (await hand.trip(spent, "limit:elsewhere", 60_000)).shut == ("limit:elsewhere",)
        assert (await hand.succeed(fine))[0].shut == ()
        assert (await hand.drop(dropped)).shut == ()
        assert (await hand.release(back))[0].shut == ()

    async def test_a_failure_does_not_name_the_limit_that_somebody_else_holds(self, bench: Bench) -> None:
        hand = await behind(bench)
        held, failed = await hand.claim(2)
        await hand.hold(held, "limit:api", 60_000)
        assert (await hand.fail(failed, delay_ms=60_000)).shut == ()

    async def test_a_hold_that_is_over_at_once_shuts_nothing(self, bench: Bench) -> None:
        hand = await behind(bench)
        assert (await hand.hold(await hand.take(), "task:work", 0)).shut == ()

    async def test_a_probe_that_fails_names_its_gate_and_one_that_succeeds_does_not(self, bench: Bench) -> None:
        hand = await behind(bench)
        for job in await hand.claim(3):
            await hand.fail(job, delay_ms=3_600_000)
        bench.clock.advance(10_000)
        assert (await hand.fail(await hand.take(), delay_ms=3_600_000)).shut == (KEY,)
        bench.clock.advance(30_000)
        assert (await hand.succeed(await hand.take()))[0].shut == ()
        assert len(await hand.claim(2)) == 2

    async def test_the_probe_of_a_spent_limit_names_it_when_it_fails(self, bench: Bench) -> None:
        hand = await behind(bench)
        await hand.trip(await hand.take(), "limit:api", 10_000)
        bench.clock.advance(10_000)
        assert (await hand.fail(await hand.take(), delay_ms=60_000)).shut == ("limit:api",)

    async def test_the_same_settlement_again_names_the_same_gates(self, bench: Bench) -> None:
        hand = await behind(bench)
        *failed, held = await hand.claim(4)
        ends = [RetryAfter(job.id, job.token, failure(), 60_000) for job in failed]
        first = await hand.settle(*ends, Hold(held.id, held.token, "task:work", 60_000), seq=1_000_000)
        assert [each.shut for each in first] == [(KEY,)] * 3 + [("task:work",)]
        await bench.change(GateChange(KEY, reset=True), GateChange("task:work", reset=True))
        assert await hand.settle(*ends, Hold(held.id, held.token, "task:work", 60_000), seq=1_000_000) == first

    async def test_what_is_given_back_unstarted_comes_again_when_the_gate_opens(self, bench: Bench) -> None:
        hand = await behind(bench, jobs=5)
        *failed, kept, also = await hand.claim(5)
        await hand.settle(*(RetryAfter(job.id, job.token, failure(), 3_600_000) for job in failed))
        await hand.release(kept, also)
        assert await hand.claim(5) == []
        bench.clock.advance(10_000)
        (probe,) = await hand.claim(5)
        assert (probe.id, probe.attempt, probe.probe) == (kept.id, 1, True)

    @pytest.mark.parametrize("slots", [1, 10, 100])
    async def test_once_it_is_seen_shut_nothing_more_comes_to_run(self, bench: Bench, slots: int) -> None:
        failing = await behind(bench, jobs=30 * slots + 30)
        ends = [RetryAfter(job.id, job.token, failure(), 3_600_000) for job in await failing.claim(3)]
        fleet = [(await bench.other()).hand(f"w{n}") for n in range(2, 5)]
        for hand in fleet:
            await hand.beat()

        done = asyncio.Event()

        async def claim(hand: Hand) -> None:
            for _ in range(10):
                await hand.ask(slots)

        async def fail() -> None:
            await failing.settle(*ends)
            done.set()

        async def running() -> set[tuple[bytes, int]]:
            return {(one.id, one.token) for hand in fleet for one in await bench.store.held(hand.session)}

        async def look() -> set[tuple[bytes, int]]:
            while not done.is_set():
                gate = await bench.gate(KEY)
                if gate is not None and is_shut(gate, bench.clock.now_ms):
                    break
            return await running()

        seen, _ = await asyncio.gather(look(), asyncio.gather(fail(), *map(claim, fleet)))
        assert await running() <= seen
