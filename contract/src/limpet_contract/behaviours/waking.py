"""Behaviours of waiting for a limit: an opened gate wakes jobs that can run, so that no job waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest

from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.behaviours.housekeeping import prune
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.seeds import chance_of

DAY_MS = 86_400_000


@asynchronous
class TestWakingWaiters:
    """A gate that opens wakes lanes that wait for it; a woken lane that cannot run passes the wake on."""

    async def full(self, bench: Bench, *keys: str) -> Claimed:
        """One running job that fills every gate named."""
        await bench.declare(*(GateRule(f"limit:{key}", concurrency=1) for key in keys))
        await bench.add(task="filler", keys=keys)
        return (await bench.hand("filler", tasks=("filler",)).claim())[0]

    async def test_a_woken_lane_that_is_empty_passes_the_wake_on(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        hand = bench.hand(tasks=("work",))
        first = await bench.add(keys=("x",), tenant="first", priority=3)
        second = await bench.add(keys=("x",), tenant="second", priority=5)
        assert await hand.claim(5) == []
        await bench.cancel(first)
        await hand.succeed(filler)
        assert await hand.ids(5) == [second]

    async def test_a_woken_lane_stopped_by_another_gate_passes_the_wake_on(self, bench: Bench) -> None:
        filler_x = await self.full(bench, "x")
        hand = bench.hand(tasks=("work",))
        both = await bench.add(keys=("x", "y"), tenant="both", priority=3)
        only = await bench.add(keys=("x",), tenant="only", priority=5)
        assert await hand.claim(5) == []
        filler_y = await self.full(bench, "y")
        await hand.succeed(filler_x)
        running = await hand.claim(5)
        assert [job.id for job in running] == [only]
        await hand.succeed(filler_y)
        assert await hand.claim(5) == []
        await hand.succeed(*running)
        assert await hand.ids(5) == [both]

    async def test_waiters_stopped_by_a_second_gate_run_when_that_one_opens(self, bench: Bench) -> None:
        filler_y = await self.full(bench, "y")
        await bench.declare(GateRule("limit:x", concurrency=1))
        hand = bench.hand(tasks=("work",))
        id = await bench.add(keys=("x", "y"))
        assert await hand.claim(5) == []
        await hand.succeed(filler_y)
        assert await hand.ids(5) == [id]

    async def test_a_long_line_of_woken_lanes_that_cannot_run_does_not_swallow_the_wake(self, bench: Bench) -> None:
        filler_x, filler_y = await self.full(bench, "x"), await self.full(bench, "y")
        hand = bench.hand(tasks=("work",))
        stuck = [bench.job(keys=("x", "y"), tenant=f"g{n}", priority=3) for n in range(300)]
        await bench.put(*stuck)
        able = await bench.add(keys=("x",), priority=5)
        assert await hand.claim(5) == []
        await hand.succeed(filler_x)
        assert await hand.ids(5) == [able]
        await hand.succeed(filler_y)

    async def test_waiters_of_each_class_are_woken(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        leaving, staying = bench.hand("x", tasks=("a",)), bench.hand("y", tasks=("b",))
        await bench.add_many(3, task="a", keys=("x",), priority=0)
        second = await bench.add(task="b", keys=("x",), priority=9)
        assert await leaving.claim(5) == []
        assert await staying.claim(5) == []
        await leaving.leave()
        await staying.succeed(filler)
        assert await staying.ids(5) == [second]

    async def test_two_freed_slots_serve_two_waiters_though_the_first_class_has_no_worker(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=2))
        await bench.add_many(2, task="filler", keys=("x",))
        fillers = await bench.hand("filler", tasks=("filler",)).claim(5)
        both = bench.hand("both", tasks=("a", "b"))
        await bench.put(*(bench.job(task="a", keys=("x",), tenant=f"a{n}", priority=0) for n in range(4)))
        waiting = [bench.job(task="b", keys=("x",), tenant=f"b{n}", priority=5) for n in range(2)]
        await bench.put(*waiting)
        assert await both.claim(9) == []
        await both.succeed(*fillers)
        assert sorted(await bench.hand("only b", tasks=("b",)).ids(9)) == [job.id for job in waiting]

    async def test_a_class_that_is_woken_and_beaten_to_the_slot_waits_again(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        one, two = bench.hand("one", tasks=("a",)), bench.hand("two", tasks=("b",))
        first, second = await bench.add(task="a", limits=("x",)), await bench.add(task="b", limits=("x",))
        assert await one.claim() == []
        assert await two.claim() == []
        await one.succeed(filler)
        running = await two.take()
        assert running.id == second
        assert await one.claim() == []
        await two.succeed(running)
        assert await one.ids() == [first]

    async def test_a_job_added_to_a_waiting_lane_waits_with_it(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        hand = bench.hand(tasks=("work",))
        ids = [await bench.add(keys=("x",))]
        assert await hand.claim(5) == []
        ids.append(await bench.add(keys=("x",)))
        assert await hand.claim(5) == []
        await hand.succeed(filler)
        assert await hand.drain(1) == ids

    async def test_pruning_the_lane_that_was_woken_passes_the_wake_on(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        hand = bench.hand(tasks=("work",))
        first = await bench.add(keys=("x", "first"), priority=3)
        second = await bench.add(keys=("x", "second"))
        assert await hand.claim(5) == []
        await bench.cancel(first)
        await bench.change(GateChange("task:work", pause=Pause("ada", "why", bench.clock.now_ms)))
        bench.clock.advance(DAY_MS)
        # One step only: the job goes, and its lane, now empty, is first in line when the slot is free.
        await bench.store.prune(Retention(cancelled_ms=0), now_ms=bench.clock.now_ms)
        await hand.succeed(filler)
        await prune(bench, Retention(cancelled_ms=0))
        await bench.change(GateChange("task:work", resume=True))
        assert await hand.ids(5) == [second]

    async def test_pruning_a_lane_that_its_job_has_left_passes_the_wake_on(self, bench: Bench) -> None:
        filler = await self.full(bench, "x")
        hand, key = bench.hand(tasks=("work",)), Unique("report", on_duplicate="replace")
        await bench.add(keys=("x", "first"), priority=3, unique=key)
        second = await bench.add(keys=("x", "second"))
        assert await hand.claim(5) == []
        await bench.put(bench.job(keys=("other",), unique=key, delay_ms=DAY_MS))
        await hand.succeed(filler)
        await prune(bench, Retention())
        assert await hand.ids(5) == [second]

    @pytest.mark.parametrize("seed", range(2))
    async def test_every_job_runs_in_the_end_under_many_crossing_limits(self, bench: Bench, seed: int) -> None:
        rng = chance_of(seed)
        caps = {f"k{n}": rng.randint(1, 2) for n in range(4)} | {"all-a": 2, "all-b": 1}
        await bench.declare(*(GateRule(f"limit:{key}", concurrency=cap) for key, cap in caps.items()))
        jobs = []
        for _ in range(80):
            task = rng.choice("ab")
            keys = tuple(sorted(rng.sample(["k0", "k1", "k2", "k3"], rng.randint(0, 2))))
            limits = (f"all-{task}",) if rng.random() < 0.5 else ()
            tenant = rng.choice([None, "g1", "g2"])
            jobs.append(bench.job(task=task, keys=keys, limits=limits, tenant=tenant, priority=rng.choice([3, 5])))
        await bench.put(*jobs)
        hands = [bench.hand("a", tasks=("a",)), bench.hand("b", tasks=("b",)), bench.hand("ab", tasks=("a", "b"))]
        running: list[Claimed] = []
        done: set[bytes] = set()
        for _ in range(2_000):
            if len(done) == len(jobs):
                break
            running += await rng.choice(hands).claim(rng.randint(1, 3))
            used = Counter(key for job in running for key in (*job.lane.keys, *job.lane.limits))
            assert all(count <= caps[key] for key, count in used.items()), used
            if running and rng.random() < 0.6:
                job = running.pop(rng.randrange(len(running)))
                await hands[0].succeed(job)
                done.add(job.id)
        assert len(done) == len(jobs), "some lanes were never woken"
        assert (await bench.store.count()).total(State.succeeded) == len(jobs)
