"""Behaviours of order: priority is strict across queues, and first in is first out within one."""

from __future__ import annotations

import random
from itertools import product

import pytest

from limpet.core.gate import GateRule
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.making import JobOptions


@asynchronous
class TestOrder:
    async def test_jobs_of_a_lane_come_first_in_first_out(self, bench: Bench) -> None:
        ids = await bench.add_many(20)
        assert await bench.hand().drain(limit=3) == ids

    async def test_order_in_a_lane_follows_the_instant_of_enqueue(self, bench: Bench) -> None:
        late, early = bench.job(), bench.job()
        await bench.put(early)
        bench.clock.advance(1)
        await bench.put(late)
        assert late.id < early.id
        assert await bench.hand().ids(5) == [early.id, late.id]

    async def test_a_more_urgent_job_comes_first_whenever_it_arrived(self, bench: Bench) -> None:
        low = await bench.add_many(3, priority=8)
        bench.clock.advance(1_000)
        critical = await bench.add(priority=0)
        assert await bench.hand().ids(4) == [critical, *low]

    async def test_priority_is_strict_across_queues_tasks_and_tenants(self, bench: Bench) -> None:
        rng = random.Random(7)
        jobs = [
            bench.job(
                queue=f"q{rng.randrange(3)}",
                task=f"t{rng.randrange(3)}",
                tenant=rng.choice([None, "a", "b"]),
                priority=p,
            )
            for p in [*range(10)] * 6
        ]
        rng.shuffle(jobs)
        await bench.put(*jobs)
        level = {job.id: job.lane.priority for job in jobs}
        order = [level[id] for id in await bench.hand().drain(limit=7)]
        assert order == sorted(order)
        assert len(order) == 60

    async def test_a_batch_crosses_priorities_only_when_the_better_one_is_spent(self, bench: Bench) -> None:
        normal = await bench.add_many(4, priority=5)
        high = await bench.add_many(3, priority=3)
        assert await bench.hand().ids(5) == [*high, *normal[:2]]

    async def test_jobs_without_a_tenant_of_a_queue_are_one_fifo_over_all_tasks(self, bench: Bench) -> None:
        ids = []
        for number in range(24):
            ids.append(await bench.add(task=f"t{number % 5}"))
            bench.clock.advance(1)
        assert await bench.hand().drain(limit=5) == ids

    async def test_least_urgent_keeps_less_urgent_jobs_for_later(self, bench: Bench) -> None:
        await bench.add_many(3, priority=5)
        high, critical = await bench.add(priority=3), await bench.add(priority=0)
        hand = bench.hand()
        assert [job.id for job in await hand.claim(10, least_urgent=3)] == [critical, high]
        assert await hand.claim(10, least_urgent=3) == []
        assert len(await hand.claim(10)) == 3

    async def test_aged_jobs_are_taken_first_and_the_others_by_priority(self, bench: Bench) -> None:
        high, normal, low = [await bench.add_many(4, priority=priority) for priority in (3, 5, 8)]
        hand = bench.hand()

        async def ids(limit: int, aged: int, most_urgent: int) -> list[bytes]:
            return [job.id for job in await hand.claim(limit, aged=aged, most_urgent=most_urgent)]

        assert await ids(1, 1, 4) == [normal[0]]
        assert await ids(3, 2, 6) == [*low[:2], high[0]]
        assert await ids(1, 5, 9) == [high[1]]  # no more urgent job waits, so none is passed
        assert await ids(2, 1, 1) == high[2:]
        assert await ids(10, 1, 8) == [low[2], *normal[1:], low[3]]
        assert await ids(10, 1, 8) == []

    async def test_who_asks_for_urgent_jobs_alone_gets_aged_ones_besides(self, bench: Bench) -> None:
        hand, low = bench.hand(), await bench.add_many(3, priority=8)
        assert [job.id for job in await hand.claim(2, least_urgent=3, aged=1, most_urgent=4)] == low[:1]
        high = await bench.add_many(2, priority=3)
        assert [job.id for job in await hand.claim(2, least_urgent=3, aged=1, most_urgent=4)] == [low[1], high[0]]
        assert await hand.ids(5) == [high[1], low[2]]

    @pytest.mark.parametrize("most_urgent", [1, 4, 9])
    async def test_priority_is_strict_among_aged_jobs_too(self, bench: Bench, most_urgent: int) -> None:
        await bench.declare(GateRule("limit:smtp", concurrency=100), GateRule("limit:acme", concurrency=100))
        lanes: list[JobOptions] = [{}, {"limits": ("smtp",)}, {"keys": ("acme",)}, {"tenant": "a"}, {"tenant": "b"}]
        levels = range(10)
        jobs = [bench.job(**lane | {"priority": p, "task": t}) for p, t, lane in product(levels, "ab", lanes)]
        jobs += [bench.job(queue="other", priority=level) for level in levels]
        random.Random(7).shuffle(jobs)
        await bench.put(*jobs)
        hand, aged, others = bench.hand(), [], []
        while found := [job.lane.priority for job in await hand.claim(17, aged=5, most_urgent=most_urgent)]:
            passing = sum(level >= most_urgent for level in found[:5])
            aged += found[:passing]
            others += found[passing:]
        assert aged == sorted(aged)
        assert others == sorted(others)
        assert sorted(aged + others) == sorted(job.lane.priority for job in jobs)
        assert aged[0] == most_urgent

    async def test_aged_jobs_that_fall_due_do_not_wait_for_a_crowd_of_urgent_ones(self, bench: Bench) -> None:
        await bench.add_many(1_100, priority=3, delay_ms=1_000)
        low = await bench.add(priority=8, delay_ms=1_000)
        bench.clock.advance(1_000)
        hand = bench.hand()
        await hand.beat()
        answer = await hand.ask(2, aged=1, most_urgent=4)
        assert [job.lane.priority for job in answer.jobs] == [8, 3]
        assert answer.jobs[0].id == low

    async def test_aged_jobs_that_must_start_at_once_need_a_slot(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:smtp", concurrency=9))
        await bench.add_many(3, priority=3)
        await bench.add_many(3, priority=8, limits=("smtp",))
        hand = bench.hand()
        for slots, expected in ((0, [3]), (1, [8, 3]), (3, [8, 8, 3])):
            found = await hand.claim(len(expected), slots=slots, aged=2, most_urgent=8)
            assert [job.lane.priority for job in found] == expected

    async def test_a_suspect_that_finds_no_slot_hides_no_more_urgent_job(self, bench: Bench) -> None:
        hand, low = bench.hand(), await bench.add(priority=8)
        await hand.lose(await hand.take())
        high = await bench.add_many(2, priority=3)
        assert [job.id for job in await hand.claim(1, slots=0, aged=1, most_urgent=4)] == high[:1]
        assert [job.id for job in await hand.claim(2, slots=1, aged=1, most_urgent=4)] == [low, high[1]]

    async def test_a_worker_of_several_queues_takes_the_most_urgent_of_all(self, bench: Bench) -> None:
        await bench.add_many(3, queue="exports", priority=8)
        mail = await bench.add(queue="mail", priority=0)
        other = await bench.add(queue="other", priority=0)
        assert await bench.hand(queues=("exports", "mail")).ids(1) == [mail]
        assert await bench.hand("w2", queues=("other",)).ids(1) == [other]

    async def test_a_released_job_goes_back_to_the_front(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand = bench.hand()
        await hand.release(await hand.take())
        bench.clock.advance(5)
        assert await hand.drain(1) == ids

    async def test_released_jobs_of_a_batch_keep_their_order(self, bench: Bench) -> None:
        ids = await bench.add_many(6)
        hand = bench.hand()
        batch = await hand.claim(4)
        await hand.release(*reversed(batch))
        assert await hand.drain(2) == ids

    async def test_a_retried_job_goes_behind_those_that_wait(self, bench: Bench) -> None:
        first, second = await bench.add_many(2)
        hand = bench.hand()
        claimed = await hand.take()
        bench.clock.advance(1)
        await hand.fail(claimed)
        assert await hand.ids(2) == [second, first]
