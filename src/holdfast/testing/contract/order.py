"""Behaviours of order: priority is strict across queues, and first in is first out within one."""

from __future__ import annotations

import random
from itertools import product

import pytest

from holdfast.core.gate import GateRule
from holdfast.testing.bench import Bench
from holdfast.testing.contract.marks import asynchronous
from holdfast.testing.making import JobOptions


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

    async def test_priority_is_strict_across_queues_tasks_and_groups(self, bench: Bench) -> None:
        rng = random.Random(7)
        jobs = [
            bench.job(
                queue=f"q{rng.randrange(3)}",
                task=f"t{rng.randrange(3)}",
                group=rng.choice([None, "a", "b"]),
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

    async def test_ungrouped_jobs_of_a_queue_are_one_fifo_over_all_tasks(self, bench: Bench) -> None:
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

    async def test_most_urgent_leaves_more_urgent_jobs_to_others(self, bench: Bench) -> None:
        hand, high = bench.hand(), await bench.add(priority=3)
        assert await hand.claim(10, most_urgent=4) == []
        critical, low, normal = await bench.add(priority=0), await bench.add(priority=8), await bench.add_many(2)
        assert await hand.claim(10, most_urgent=9) == []
        assert await hand.claim(10, most_urgent=4, least_urgent=4) == []
        assert [job.id for job in await hand.claim(2, most_urgent=4)] == normal
        assert [job.id for job in await hand.claim(10, most_urgent=4)] == [low]
        assert await hand.ids(10) == [critical, high]

    @pytest.mark.parametrize("most_urgent", [1, 4, 9])
    async def test_priority_is_strict_among_the_less_urgent_too(self, bench: Bench, most_urgent: int) -> None:
        await bench.declare(GateRule("limit:smtp", concurrency=100), GateRule("limit:acme", concurrency=100))
        lanes: list[JobOptions] = [{}, {"limits": ("smtp",)}, {"keys": ("acme",)}, {"group": "a"}, {"group": "b"}]
        levels = range(10)
        jobs = [bench.job(**lane | {"priority": p, "task": t}) for p, t, lane in product(levels, "ab", lanes)]
        jobs += [bench.job(queue="other", priority=level) for level in levels]
        random.Random(7).shuffle(jobs)
        await bench.put(*jobs)
        hand, order = bench.hand(), []
        while found := await hand.claim(17, most_urgent=most_urgent):
            order += [job.lane.priority for job in found]
        assert order == sorted(job.lane.priority for job in jobs if job.lane.priority >= most_urgent)
        assert len(await hand.drain(100)) == len(jobs) - len(order)

    async def test_less_urgent_jobs_that_fall_due_do_not_wait_for_a_crowd_of_urgent_ones(self, bench: Bench) -> None:
        await bench.add_many(1_100, priority=3, delay_ms=1_000)
        low = await bench.add(priority=8, delay_ms=1_000)
        bench.clock.advance(1_000)
        hand = bench.hand()
        await hand.beat()
        assert [job.id for job in (await hand.ask(1, most_urgent=8)).jobs] == [low]
        assert not (await hand.ask(1, most_urgent=8)).again

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
