"""Behaviours of a task that was renamed from "old" to "new": its jobs share one gate and one scope of unique keys."""

from __future__ import annotations

import pytest

from limpet.core.errors import QueueDraining
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.stores.asking import examined
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestNamesOfATask:
    async def test_a_job_keeps_its_name_and_its_scope(self, bench: Bench) -> None:
        old, new = await bench.add(task="old"), await bench.add(task="new", scope="old")
        lanes = [(await bench.view(id)).lane for id in (old, new)]
        assert [(lane.task, lane.scope) for lane in lanes] == [("old", None), ("new", "old")]
        assert await bench.hand(tasks=("new",)).ids(5) == [new]

    async def test_a_pause_holds_for_all_names(self, bench: Bench) -> None:
        ids = [await bench.add(task="old"), await bench.add(task="new", scope="old")]
        other = await bench.add(task="other")
        await bench.change(GateChange("task:old", pause=Pause("ada", "renamed", bench.clock.now_ms)))
        hand = bench.hand()
        assert await hand.ids(5) == [other]
        await bench.change(GateChange("task:old", resume=True))
        assert await hand.ids(5) == ids

    async def test_jobs_of_all_names_share_the_slots_of_the_task(self, bench: Bench) -> None:
        await bench.change(GateChange("task:old", rule=GateRule("task:old", concurrency=1)))
        ids = [await bench.add(task="old"), await bench.add(task="new", scope="old")]
        hand = bench.hand()
        first = await hand.claim(5)
        assert [job.id for job in first] == ids[:1]
        await hand.succeed(*first)
        assert await hand.ids(5) == ids[1:]

    async def test_pushback_holds_all_names(self, bench: Bench) -> None:
        await bench.add(task="old")
        await bench.add(task="new", scope="old")
        hand = bench.hand(tasks=("old",))
        job = await hand.take()
        await hand.hold(job, "task:old", 5_000)
        assert await bench.hand("w2", tasks=("new",)).claim() == []

    async def test_a_draining_task_refuses_all_names_and_works_off_all(self, bench: Bench) -> None:
        new = await bench.add(task="new", scope="old")
        await bench.change(GateChange("task:old", drain=True))
        with pytest.raises(QueueDraining):
            await bench.add(task="new", scope="old")
        hand = bench.hand()
        await bench.sweep(2_000, hand)
        assert await hand.ids() == [new]

    async def test_a_drained_task_ends_paused_when_no_name_has_jobs(self, bench: Bench) -> None:
        await bench.add(task="new", scope="old")
        await bench.change(GateChange("task:old", drain=True))
        hand = bench.hand()
        await hand.drain()
        await bench.sweep(2_000, hand)
        (gate,) = await bench.store.gates(keys=["task:old"])
        assert gate.paused is not None

    async def test_all_names_share_their_unique_keys(self, bench: Bench) -> None:
        holder = await bench.add(task="old", unique=Unique("k"))
        answer = (await bench.put(bench.job(task="new", scope="old", unique=Unique("k"))))[0]
        assert (answer.id, answer.existing) == (holder, True)

    async def test_the_keys_of_a_new_name_have_nothing_to_repair(self, bench: Bench) -> None:
        await bench.add(task="new", scope="old", unique=Unique("k"))
        assert await examined(bench.store).repair(dry_run=True, now_ms=bench.clock.now_ms) == []

    async def test_a_key_that_another_name_holds_refuses_a_retry(self, bench: Bench) -> None:
        dead = await bench.add(task="new", scope="old", unique=Unique("k"))
        hand = bench.hand()
        await hand.bury(await hand.take())
        holder = await bench.add(task="old", unique=Unique("k"))
        assert await bench.retry(dead) == ["unique_held"]
        await hand.drain()
        assert await bench.state(holder) is State.succeeded
        assert await bench.retry(dead) == ["retried"]
