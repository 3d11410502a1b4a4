"""Behaviours of counting: every job is counted in exactly one place, whatever happened to it."""

from __future__ import annotations

import pytest

from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS
from limpet_contract.seeds import chance_of


@asynchronous
class TestCounters:
    async def test_an_empty_store_counts_nothing(self, bench: Bench) -> None:
        counts = await bench.store.count()
        assert (counts.enqueued, counts.succeeded, counts.cancelled, counts.discarded) == (0, 0, 0, 0)
        assert (counts.lost, counts.stale, sum(counts.now.values())) == (0, 0, 0)

    async def test_jobs_are_counted_by_queue_task_and_state(self, bench: Bench) -> None:
        await bench.add_many(3, queue="a", task="x")
        await bench.add(queue="a", task="y", delay_ms=5_000)
        parent = await bench.add(queue="b", task="x")
        await bench.add(queue="b", task="z", after=(parent,))
        hand = bench.hand(queues=("a",))
        await hand.take()
        now = {key: number for key, number in (await bench.store.count()).now.items() if number}
        assert now == {
            ("a", "x", State.ready): 2,
            ("a", "x", State.running): 1,
            ("a", "y", State.scheduled): 1,
            ("b", "x", State.ready): 1,
            ("b", "z", State.blocked): 1,
        }

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_the_books_balance_after_every_ending(self, bench: Bench, ending: str) -> None:
        await bench.add_many(4, limits=("x",), breaker="api", tenant="g")
        hand = bench.hand()
        jobs = await hand.claim(3)
        await hand.end(ending, *jobs)
        await bench.check_books()
        counts = await bench.store.count()
        assert counts.enqueued == 4
        assert counts.total(State.running) == 0

    async def test_duplicates_and_refusals_are_not_counted_as_enqueued(self, bench: Bench) -> None:
        job = bench.job()
        await bench.put(job, job)
        await bench.put(job)
        assert (await bench.store.count()).enqueued == 1

    async def test_a_revived_dependent_is_no_longer_counted_as_cancelled(self, bench: Bench) -> None:
        parent = await bench.add(task="parent")
        await bench.add_many(3, after=(parent,))
        hand = bench.hand()
        await hand.bury(await hand.take())
        assert (await bench.store.count()).cancelled == 3
        await bench.check_books()
        await bench.retry(parent)
        assert (await bench.store.count()).cancelled == 0
        await bench.check_books()

    @pytest.mark.parametrize("seed", range(3))
    async def test_the_books_balance_at_every_step_of_a_busy_day(self, bench: Bench, seed: int) -> None:
        rng = chance_of(seed)
        hands = [bench.hand(f"w{n}", ttl_ms=4_000) for n in range(3)]
        ids: list[bytes] = []
        for _ in range(60):
            step = rng.randrange(6)
            if step == 0:
                parents = tuple(rng.sample(ids, min(len(ids), rng.randint(0, 2))))
                present = [id for id, state in zip(parents, await bench.states(parents), strict=True) if state]
                delay_ms, task = rng.choice([0, 0, 2_000]), rng.choice(["a", "b"])
                ids += await bench.add_many(rng.randint(1, 4), after=tuple(present), delay_ms=delay_ms, task=task)
            elif step == 1 and ids:
                await bench.cancel(*rng.sample(ids, 1), force=rng.random() < 0.5)
            elif step == 2 and ids:
                await bench.retry(*rng.sample(ids, 1))
            elif step == 3:
                await bench.sweep(rng.choice([1_000, 6_000]), hands[0])
            else:
                hand = rng.choice(hands)
                for job in await hand.claim(rng.randint(1, 4)):
                    if rng.random() < 0.85:
                        await hand.end(rng.choice(list(ENDINGS)), job)
            await bench.check_books()
        assert (await bench.store.count()).enqueued == len(ids)
