"""Behaviours of fairness: at one priority, queues take turns, and within a queue its tenants do.

A turn is worth one job, or as many as the weight says, so all of it can be counted.
"""

from __future__ import annotations

from collections import Counter

import pytest

from limpet.core.gate import GateRule
from limpet.core.jobs.view import Control
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand


async def served(hand: Hand, jobs: int, *, batch: int = 1, by: str = "tenant") -> Counter[str]:
    """Who got how many of the next `jobs` claims."""
    got: Counter[str] = Counter()
    while got.total() < jobs:
        claimed = await hand.claim(min(batch, jobs - got.total()))
        assert claimed, "jobs should be left"
        got.update(str(getattr(job.lane, by)) for job in claimed)
        await hand.succeed(*claimed)
    return got


async def weigh(bench: Bench, name: str, weight: int) -> None:
    assert await bench.store.put_control(Control("weight", name, str(weight).encode()))


@asynchronous
class TestFairness:
    @pytest.mark.parametrize("batch", [1, 5, 32])
    async def test_tenants_share_equally_however_many_jobs_each_has(self, bench: Bench, batch: int) -> None:
        for tenant, count in (("whale", 400), ("carp", 70), ("minnow", 70)):
            await bench.add_many(count, tenant=tenant)
        got = await served(bench.hand(), 150, batch=batch)
        assert all(abs(got[tenant] - 50) <= 1 for tenant in ("whale", "carp", "minnow")), got

    @pytest.mark.parametrize("batch", [1, 10])
    async def test_a_newcomer_is_served_within_one_round(self, bench: Bench, batch: int) -> None:
        hand = bench.hand()
        await weigh(bench, "tenant:g0", 7)
        for number in range(4):
            await bench.add_many(150 if number else 400, tenant=f"g{number}")
        await served(hand, 203, batch=10)
        await bench.add(tenant="newcomer")
        assert (await served(hand, 7 + 3 + 1, batch=batch))["newcomer"] == 1

    @pytest.mark.parametrize("batch", [1, 10])
    async def test_a_newcomer_in_one_of_several_queues_is_served_within_one_round_of_both(
        self, bench: Bench, batch: int
    ) -> None:
        hand = bench.hand()
        for number in range(3):
            await bench.add_many(60, queue="its", tenant=f"g{number}")
            await bench.add_many(60, queue=f"another{number}")
        await served(hand, 50, batch=7)
        await bench.add(queue="its", tenant="newcomer")
        assert (await served(hand, (3 + 1) * 4, batch=batch))["newcomer"] == 1

    async def test_a_newcomer_in_a_task_of_a_slower_pool_is_served_within_one_round(self, bench: Bench) -> None:
        fast, slow = bench.hand("fast", tasks=("fast",)), bench.hand("slow", tasks=("slow",))
        for number in range(3):
            await bench.add_many(300, tenant=f"g{number}", task="fast")
            await bench.add_many(40, tenant=f"g{number}", task="slow")
        await served(slow, 10)
        await served(fast, 600, batch=30)
        await bench.add(tenant="newcomer", task="slow")
        assert (await served(slow, 4))["newcomer"] == 1

    async def test_one_job_beside_a_crowd_of_one_tenant_waits_one_turn_at_most(self, bench: Bench) -> None:
        await bench.add_many(1_000, tenant="whale")
        hand = bench.hand()
        await served(hand, 20)
        await bench.add(tenant="small")
        assert (await served(hand, 2))["small"] == 1

    async def test_a_tenant_that_comes_back_gets_no_arrears(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.add(tenant="a")
        await bench.add_many(300, tenant="b")
        await served(hand, 200, batch=10)
        await bench.add_many(100, tenant="a")
        got = await served(hand, 60)
        assert abs(got["a"] - got["b"]) <= 2, got

    async def test_a_weight_multiplies_a_tenants_share(self, bench: Bench) -> None:
        await weigh(bench, "tenant:big", 3)
        for tenant in ("big", "small"):
            await bench.add_many(300, tenant=tenant)
        got = await served(bench.hand(), 240, batch=7)
        assert abs(got["big"] - 180) <= 3, got

    async def test_a_weight_changed_at_run_time_is_heeded(self, bench: Bench) -> None:
        hand = bench.hand()
        for tenant in ("a", "b"):
            await bench.add_many(400, tenant=tenant)
        await served(hand, 100)
        await weigh(bench, "tenant:b", 4)
        got = await served(hand, 200)
        assert abs(got["b"] - 160) <= 4, got

    async def test_a_tenant_with_four_tasks_gets_no_more_than_one_with_one(self, bench: Bench) -> None:
        for number in range(4):
            await bench.add_many(100, tenant="many", task=f"t{number}")
        await bench.add_many(300, tenant="one", task="t0")
        got = await served(bench.hand(), 200, batch=6)
        assert abs(got["many"] - got["one"]) <= 2, got

    async def test_jobs_without_a_tenant_are_one_participant(self, bench: Bench) -> None:
        for number in range(4):
            await bench.add_many(60, task=f"t{number}")
        await bench.add_many(200, tenant="tenant")
        got = await served(bench.hand(), 120, batch=4)
        assert abs(got["tenant"] - got["None"]) <= 2, got

    async def test_lanes_without_a_tenant_with_keys_of_their_own_take_turns(self, bench: Bench) -> None:
        await bench.add_many(200, keys=("customer:whale",))
        await bench.add_many(60, keys=("customer:small",))
        got = await served(bench.hand(), 100, by="keys")
        assert abs(got["('customer:small',)"] - 50) <= 1, got

    async def test_queues_at_one_priority_take_turns(self, bench: Bench) -> None:
        await bench.add_many(400, queue="big", tenant="a")
        await bench.add_many(100, queue="small", tenant="b")
        got = await served(bench.hand(), 120, by="queue", batch=5)
        assert abs(got["small"] - 60) <= 1, got

    async def test_a_new_queue_beside_an_old_one_gets_half(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.add_many(700, queue="old")
        await served(hand, 500, batch=50)
        await bench.add_many(100, queue="new")
        got = await served(hand, 100, by="queue", batch=3)
        assert abs(got["new"] - 50) <= 1, got

    async def test_a_weight_multiplies_a_queues_share(self, bench: Bench) -> None:
        await weigh(bench, "queue:big", 3)
        for queue in ("big", "small"):
            await bench.add_many(200, queue=queue)
        got = await served(bench.hand(), 160, by="queue", batch=4)
        assert abs(got["big"] - 120) <= 3, got

    async def test_tenants_share_within_each_queue_not_across(self, bench: Bench) -> None:
        for number in range(3):
            await bench.add_many(100, queue="many", tenant=f"g{number}")
        await bench.add_many(100, queue="few", tenant="g0")
        got = await served(bench.hand(), 120, by="queue", batch=2)
        assert abs(got["few"] - 60) <= 2, got

    async def test_within_a_claim_nobody_waits_behind_a_whole_share_of_another(self, bench: Bench) -> None:
        await bench.add_many(80, queue="old", tenant="a")
        await served(bench.hand(), 5)
        newcomers = [await bench.add(queue="new"), await bench.add(queue="old", tenant="b")]
        order = await bench.hand().ids(64)
        assert len(order) == 64
        assert order.index(newcomers[0]) < 2, "one job of the other queue may come first"
        assert order.index(newcomers[1]) < 4, "one job of the other tenant, and each time one of the other queue"

    async def test_tenants_share_a_scarce_limit_within_one_claim(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:smtp", concurrency=4))
        for tenant in ("a", "b"):
            await bench.add_many(50, tenant=tenant, limits=("smtp",))
        assert Counter(job.lane.tenant for job in await bench.hand().claim(20)) == {"a": 2, "b": 2}

    async def test_tenants_share_scarce_slots_within_one_claim(self, bench: Bench) -> None:
        for tenant in ("a", "b"):
            await bench.add_many(50, tenant=tenant, limits=("smtp",))
        jobs = await bench.hand().claim(20, slots=4)
        assert Counter(job.lane.tenant for job in jobs) == {"a": 2, "b": 2}

    async def test_fairness_never_overrides_priority(self, bench: Bench) -> None:
        await bench.add_many(50, tenant="a", priority=3)
        await bench.add_many(50, tenant="b", priority=5)
        assert await served(bench.hand(), 50, batch=4) == {"a": 50}

    async def test_first_in_first_out_holds_within_a_tenant_and_task(self, bench: Bench) -> None:
        ids = {tenant: await bench.add_many(20, tenant=tenant) for tenant in ("a", "b", "c")}
        order = await bench.hand().drain(4)
        for members in ids.values():
            assert [id for id in order if id in set(members)] == members
