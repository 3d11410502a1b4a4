"""Behaviours against starvation: whatever floods a queue or waits at a gate, all other jobs get a turn."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Job
from limpet_contract.behaviours.fairness import served, weigh
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.making import JobOptions

LIMITS: dict[str, JobOptions] = {"constant": {"limits": ("x",)}, "templated": {"keys": ("x",)}}


@asynchronous
class TestStarvation:
    @pytest.mark.parametrize("batch", [3, 60])
    async def test_a_newcomer_waits_one_round_at_most_whatever_others_weigh(self, bench: Bench, batch: int) -> None:
        weights = {"g1": 1, "g2": 8, "g3": 50}
        for tenant, weight in weights.items():
            await weigh(bench, f"tenant:{tenant}", weight)
            await bench.add_many(150, tenant=tenant)
        hand = bench.hand()
        await served(hand, 90, batch=batch)
        await bench.add(tenant="newcomer")
        assert (await served(hand, sum(weights.values()) + 1, batch=batch))["newcomer"] == 1

    @pytest.mark.parametrize("batch", [10, 303])
    async def test_a_light_tenant_gets_its_share_beside_a_heavy_one(self, bench: Bench, batch: int) -> None:
        await weigh(bench, "tenant:heavy", 100)
        await bench.add_many(500, tenant="heavy")
        await bench.add_many(20, tenant="light")
        assert await served(bench.hand(), 303, batch=batch) == {"heavy": 300, "light": 3}

    @pytest.mark.parametrize("kind", LIMITS)
    async def test_where_one_runs_at_a_time_aged_jobs_have_their_turns(self, bench: Bench, kind: str) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        for task, priority in (("urgent", 3), ("normal", 5), ("low", 8)):
            await bench.put(*(bench.job(**LIMITS[kind] | {"task": task, "priority": priority}) for _ in range(3)))
        hand, order = bench.hand(), []
        for aged, most_urgent in ((0, 0), (1, 4), (1, 6), (0, 0), (1, 9), (1, 6)):
            jobs = await hand.claim(5, aged=aged, most_urgent=most_urgent)
            order += [job.lane.task for job in jobs]
            assert await hand.claim(5, aged=aged, most_urgent=most_urgent) == []
            await hand.succeed(*jobs)
        assert order == ["urgent", "normal", "low", "urgent", "urgent", "low"]

    @pytest.mark.parametrize("kind", LIMITS)
    async def test_an_aged_job_that_does_not_fit_a_budget_shuts_it_for_nobody(self, bench: Bench, kind: str) -> None:
        await bench.declare(GateRule("limit:x", unit="usd", cap=10, period="day"))

        def job(task: str, priority: int, usd: int) -> Job:
            return bench.job(**LIMITS[kind] | {"task": task, "priority": priority, "costs": {"usd": usd}})

        await bench.put(*(job("urgent", 3, 2) for _ in range(4)))
        hand = bench.hand()
        assert len(await hand.claim(1)) == 1
        await bench.put(job("low", 8, 9), *(job("low", 8, 1) for _ in range(5)))
        for _ in range(2):
            assert [job.lane.task for job in await hand.claim(1, aged=1, most_urgent=4)] == ["urgent"]
        # When it is reached by priority, no job passes it, and none of the jobs behind it does.
        found = await hand.claim(5, aged=2, most_urgent=4)
        assert [job.lane.task for job in found] == ["urgent"]
        budget = await bench.gate("limit:x")
        assert budget is not None
        assert budget.reserved_for == 9

    async def test_a_costly_job_is_not_passed_at_a_rate_that_never_holds_so_much(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:r", interval_us=1_000_000, burst=2))
        await bench.add_many(20, limits=("r",), tenant="cheap")
        costly = await bench.add(limits=("r",), tenant="costly", cost=10)
        hand, order = bench.hand(), []
        for _ in range(4):
            order += await hand.ids(5)
            bench.clock.advance(1_000)
        assert costly in order

    async def test_a_costly_job_is_not_passed_at_a_budget_that_cheap_ones_use_and_refill(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:usd", unit="usd", cap=10, period="day"))
        await bench.add_many(5, limits=("usd",), costs={"usd": 1})
        hand = bench.hand()
        running = await hand.claim(5)
        costly = await bench.add(limits=("usd",), costs={"usd": 9}, tenant="costly")
        await bench.add_many(50, limits=("usd",), costs={"usd": 1})
        started: list[bytes] = []
        for _ in range(8):  # what each of them gives back is enough for another cheap one
            done = running.pop(0)
            await hand.settle(Succeed(done.id, done.token), spent={done.id: {"usd": 0}})
            running += await hand.claim(5)
            started += [job.id for job in running]
        assert costly in started
