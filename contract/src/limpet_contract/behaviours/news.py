"""Behaviours of events: what becomes of gates is logged in the same step, once, for people and alerts."""

from __future__ import annotations

from typing import Any

import msgspec

from limpet.core.endings.transition import Succeed
from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.view import Retention
from limpet.core.limits.period import DAY_MS
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

BREAKER = GateRule(
    "breaker:b", breaker=BreakerRule(failures=2, within_ms=60_000, cooldown_ms=5_000, probe_after_ms=2_000)
)


async def events(bench: Bench) -> list[tuple[str, dict[str, Any]]]:
    """Every event so far, by kind and facts."""
    return [(entry.kind, msgspec.json.decode(entry.data)) for entry in await bench.store.read("event")]


@asynchronous
class TestNews:
    async def test_a_breaker_that_opens_and_closes_is_news(self, bench: Bench) -> None:
        await bench.declare(BREAKER)
        await bench.add_many(4, breaker="b")
        hand = bench.hand()
        for job in await hand.claim(2):
            await hand.fail(job, delay_ms=600_000)
        opened_ms = bench.clock.now_ms
        bench.clock.advance(2_000)
        probe = await hand.take()
        await hand.succeed(probe)
        assert await events(bench) == [
            ("breaker.opened", {"gate": "breaker:b", "until_ms": opened_ms + 2_000}),
            ("breaker.closed", {"gate": "breaker:b"}),
        ]
        (entry, _) = await bench.store.read("event")
        assert entry.at_ms == opened_ms

    async def test_a_failed_probe_and_a_hand_are_news_too(self, bench: Bench) -> None:
        await bench.declare(BREAKER)
        await bench.add_many(4, breaker="b")
        await bench.change(GateChange("breaker:b", trip_ms=1_000))
        bench.clock.advance(1_000)
        hand = bench.hand()
        await hand.fail(await hand.take())
        await bench.change(GateChange("breaker:b", reset=True))
        kinds = [kind for kind, _ in await events(bench)]
        assert kinds == ["breaker.opened", "breaker.opened", "breaker.closed"]

    async def test_a_hold_is_news_when_it_begins(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:k", concurrency=3))
        await bench.add_many(3, limits=("k",))
        hand = bench.hand()
        one, two = await hand.claim(2)
        await hand.hold(one, "limit:k", 5_000)
        await hand.hold(two, "limit:k", 9_000)
        assert await events(bench) == [("limit.held", {"gate": "limit:k", "until_ms": bench.clock.now_ms + 5_000})]
        bench.clock.advance(9_000)
        await hand.hold(await hand.take(), "limit:k", 1_000)
        assert len(await events(bench)) == 2

    async def test_a_budget_is_news_at_half_at_four_fifths_and_at_its_end(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:usd", unit="usd", cap=10, period="day"))
        await bench.add_many(6, limits=("usd",), costs={"usd": 2})
        hand = bench.hand()
        seen = []
        for _ in range(5):
            await hand.take()
            seen.append([facts.get("percent") for _, facts in await events(bench)])
        assert seen == [[], [], [50], [50, 80], [50, 80, 100]]
        assert await hand.claim() == []
        hundred = {"gate": "limit:usd", "percent": 100, "spent": 10, "cap": 10}
        assert (await events(bench))[-1] == ("budget.reached", hundred)

    async def test_a_budget_is_news_once_in_a_period_however_often_it_comes_and_goes(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:usd", unit="usd", cap=10, period="day"))
        await bench.add_many(16, limits=("usd",), costs={"usd": 6})
        hand = bench.hand()
        half, short = ("budget.reached", 50), ("budget.short", None)
        for day in range(2):
            for _ in range(3):
                (job,) = await hand.claim(2)
                assert await hand.claim(2) == []
                await hand.settle(Succeed(job.id, job.token), spent={job.id: {"usd": 0}})
                told = [(kind, facts.get("percent")) for kind, facts in await events(bench)]
                assert told == [half, short] * (day + 1)
                while await bench.store.prune(Retention(event_ms=None), now_ms=bench.clock.now_ms):
                    pass
            bench.clock.advance(DAY_MS)

    async def test_a_budget_is_news_again_when_its_cap_is_changed(self, bench: Bench) -> None:
        async def set_cap(cap: int) -> list[int | None]:
            rule = GateRule("limit:usd", unit="usd", cap=cap, period="day")
            seen = len(await events(bench))
            await bench.change(GateChange("limit:usd", rule=rule))
            return [facts.get("percent") for _, facts in (await events(bench))[seen:]]

        await bench.add_many(4, limits=("usd",), costs={"usd": 3})
        assert await set_cap(10) == []
        hand = bench.hand()
        await hand.take()
        assert await set_cap(5) == [50]
        assert await set_cap(3) == [80, 100]
        assert await set_cap(12) == []
        await hand.take()
        assert [facts.get("percent") for _, facts in await events(bench)] == [50, 80, 100, 50]

    async def test_a_budget_that_somebody_waits_for_is_news_once(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:usd", unit="usd", cap=10, period="day"))
        await bench.add_many(3, limits=("usd",), costs={"usd": 3})
        await bench.add(limits=("usd",), costs={"usd": 4})
        hand = bench.hand()
        jobs = await hand.claim(4)
        assert await hand.claim(4) == []
        short = ("budget.short", {"gate": "limit:usd", "wants": 4, "spent": 9, "cap": 10})
        assert [event for event in await events(bench) if event[0] == "budget.short"] == [short]
        await hand.settle(Succeed(jobs[0].id, jobs[0].token), spent={jobs[0].id: {"usd": 3}})
        assert await hand.claim(4) == []
        assert [event for event in await events(bench) if event[0] == "budget.short"] == [short]

    async def test_what_changes_nothing_is_no_news(self, bench: Bench) -> None:
        await bench.declare(BREAKER, GateRule("limit:k", concurrency=3, interval_us=10, burst=1))
        await bench.add_many(3, limits=("k",), breaker="b")
        hand = bench.hand()
        await hand.drain()
        await bench.change(GateChange("breaker:b", reset=True))
        assert await events(bench) == []
