"""Very many queues, tenants and keys: a step looks at some of them, counted in commands, and nobody is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from limpet.core.gate import GateRule
from tests.engines.redis.place import Place


@pytest.fixture
async def crowd() -> AsyncIterator[Place]:
    crowd = Place()
    yield crowd
    await crowd.store.close()


async def test_every_one_of_very_many_queues_has_its_turn(crowd: Place) -> None:
    await crowd.put(*(crowd.job(queue=f"q{n % 700}") for n in range(2_100)))
    hand = crowd.hand()
    served: Counter[str] = Counter()
    for _ in range(100):
        served.update(job.lane.queue for job in await hand.claim(10))
    assert (len(served), served.total()) == (700, 1_000)
    assert set(served.values()) == {1, 2}
    assert len([job for _ in range(2) for job in await hand.claim(1_000)]) == 1_100
    assert crowd.sound()


async def test_the_best_priority_is_found_behind_any_number_of_others(crowd: Place) -> None:
    await crowd.put(*(crowd.job(queue=f"q{n}", priority=0) for n in range(600)))
    await crowd.put(crowd.job(queue="mine", priority=5), crowd.job(queue="mine", priority=4))
    hand = crowd.hand(queues=("mine",))
    assert [job.lane.priority for job in await hand.claim(1) + await hand.claim(1)] == [4, 5]
    assert await hand.claim() == []


async def test_aged_jobs_cost_a_claim_no_more_where_there_are_more_urgent_ones(crowd: Place) -> None:
    costs = []
    hand = crowd.hand()
    await crowd.add_many(10, priority=8)
    for start in (0, 600):
        await crowd.put(*(crowd.job(queue=f"q{start + n}", tenant=f"g{n}", priority=3) for n in range(600 + start)))
        await hand.claim(2, aged=2, most_urgent=4)
        crowd.reset()
        assert [job.lane.priority for job in await hand.claim(2, aged=2, most_urgent=4)] == [8, 8]
        costs.append(crowd.commands().total())
    assert costs[1] <= costs[0] + 5
    assert costs[1] < 60


async def test_a_claim_costs_no_more_where_there_are_more_queues(crowd: Place) -> None:
    costs = []
    hand = crowd.hand()
    for start in (0, 600):
        await crowd.put(*(crowd.job(queue=f"q{start + n}") for n in range(600 + start)))
        await hand.claim(2)
        crowd.reset()
        await hand.claim(2)
        costs.append(crowd.commands().total())
    assert costs[1] <= costs[0] + 5
    assert costs[1] < 100


async def test_a_claim_from_tenants_with_many_keys_each_reads_about_as_many_lanes_as_it_takes_jobs(
    crowd: Place,
) -> None:
    await crowd.put(*(crowd.job(tenant=f"g{n % 20}", keys=(f"k{n}",)) for n in range(1_000)))
    hand = crowd.hand()
    crowd.reset()
    jobs = await hand.claim(100)
    assert crowd.commands().total() < 2_500
    assert set(Counter(job.lane.tenant for job in jobs).values()) == {5}
    assert len({job.id for job in jobs}) == 100


async def test_keys_that_are_full_do_not_hide_those_that_are_not(crowd: Place) -> None:
    rules = [GateRule(f"limit:k{n}", concurrency=1) for n in range(60)]
    jobs = [crowd.job(tenant=f"g{n % 3}", keys=(f"k{n % 60}",)) for n in range(180)]
    await crowd.put(*jobs, rules=rules)
    hand = crowd.hand()
    taken = await hand.claim(200)
    assert len(taken) == 60
    assert len({job.lane.keys for job in taken}) == 60
    assert await hand.claim() == []
    assert crowd.sound()


async def test_a_gate_that_opens_looks_only_at_what_it_rules(crowd: Place) -> None:
    await crowd.put(*(crowd.job(queue=f"q{n}") for n in range(400)))
    rule = GateRule("limit:smtp", concurrency=1)
    await crowd.put(*(crowd.job(queue="mail", limits=("smtp",)) for _ in range(2)), rules=[rule])
    hand = crowd.hand(queues=("mail",))
    job = await hand.take()
    assert await hand.claim() == []
    crowd.reset()
    await hand.succeed(job)
    assert crowd.commands().total() < 80
    assert (await hand.take()).lane.queue == "mail"
