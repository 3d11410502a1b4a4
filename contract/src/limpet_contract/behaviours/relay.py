"""Behaviours of relaying an outbox: a batch is stored together with its mark, and once for ever."""

from __future__ import annotations

import pytest

from limpet.core.errors import QueueDraining, UnknownParent
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Enqueued, Job, Unique
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Retention
from limpet.stores.base import MARK
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

LARGEST = (1 << 53) - 1


async def relay(
    bench: Bench, batch: int, *jobs: Job, source: str = "orders", rules: tuple[GateRule, ...] = ()
) -> list[Enqueued] | None:
    return await bench.store.relay(source, batch, jobs, rules, now_ms=bench.clock.now_ms)


async def marks(bench: Bench) -> dict[str, bytes]:
    return {control.name: control.value for control in await bench.store.controls(MARK)}


@asynchronous
class TestRelay:
    async def test_the_jobs_are_stored_and_the_mark_is_moved(self, bench: Bench) -> None:
        jobs = [bench.job(), bench.job(queue="other"), bench.job(delay_ms=1_000)]
        answers = await relay(bench, 7, *jobs)
        states = (State.ready, State.ready, State.scheduled)
        assert answers == [Enqueued(job.id, False, state) for job, state in zip(jobs, states, strict=True)]
        assert await bench.states([job.id for job in jobs]) == list(states)
        assert await marks(bench) == {"orders": b"7"}

    async def test_the_same_batch_again_changes_nothing(self, bench: Bench) -> None:
        job = bench.job()
        assert await relay(bench, 7, job) is not None
        for _ in range(2):
            assert await relay(bench, 7, job) is None
        assert (await bench.store.count()).enqueued == 1
        assert await marks(bench) == {"orders": b"7"}

    async def test_a_batch_stays_done_when_its_jobs_are_long_forgotten(self, bench: Bench) -> None:
        job = bench.job()
        await relay(bench, 7, job)
        assert await bench.hand().drain() == [job.id]
        bench.clock.advance(30 * 86_400_000)
        while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
            pass
        assert await bench.states([job.id]) == [None]
        assert await relay(bench, 7, job) is None
        assert (await bench.store.count()).enqueued == 1

    async def test_an_older_batch_comes_too_late(self, bench: Bench) -> None:
        await relay(bench, 7, bench.job())
        late = bench.job()
        assert await relay(bench, 6, late) is None
        assert await bench.states([late.id]) == [None]
        assert await marks(bench) == {"orders": b"7"}

    async def test_a_newer_batch_goes_on_and_numbers_may_have_gaps(self, bench: Bench) -> None:
        jobs = [bench.job() for _ in range(4)]
        for batch, job in zip((1, 2, 1_900_000_000_000_000, LARGEST), jobs, strict=True):
            assert await relay(bench, batch, job) is not None
        assert await relay(bench, LARGEST, bench.job()) is None
        assert await relay(bench, LARGEST - 1, bench.job()) is None
        assert await marks(bench) == {"orders": b"%d" % LARGEST}
        assert await bench.hand().drain() == [job.id for job in jobs]

    async def test_each_source_has_a_mark_of_its_own(self, bench: Bench) -> None:
        await relay(bench, 7, bench.job())
        assert await relay(bench, 3, bench.job(), source="customers") is not None
        assert await relay(bench, 3, bench.job(), source="customers") is None
        assert await marks(bench) == {"customers": b"3", "orders": b"7"}

    async def test_another_handle_knows_the_mark(self, bench: Bench) -> None:
        job = bench.job()
        await relay(bench, 7, job)
        assert await relay(await bench.other(), 7, job) is None

    async def test_no_jobs_at_all_move_the_mark(self, bench: Bench) -> None:
        assert await relay(bench, 7) == []
        assert await relay(bench, 7, bench.job()) is None
        assert (await bench.store.count()).enqueued == 0

    async def test_every_move_is_a_new_version_of_the_mark(self, bench: Bench) -> None:
        await relay(bench, 1, bench.job())
        first = (await bench.store.controls(MARK))[0]
        await relay(bench, 2, bench.job())
        assert (await bench.store.controls(MARK))[0].version > first.version
        assert await bench.store.put_control(Control(MARK, "orders", b"9"), expect=first.version) is None

    async def test_what_is_relayed_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        hand = bench.hand()
        assert await hand.claim() == []
        job = bench.job()
        await relay(bench, 1, job)
        assert (await bench.store.wait(hand.session, 5_000)).work
        assert await hand.ids() == [job.id]

    async def test_limits_that_the_jobs_name_are_declared(self, bench: Bench) -> None:
        jobs = [bench.job(limits=("smtp",)) for _ in range(3)]
        await relay(bench, 1, *jobs, rules=(GateRule("limit:smtp", concurrency=2),))
        assert await bench.hand().ids(5) == [jobs[0].id, jobs[1].id]

    async def test_jobs_keep_their_order_within_and_across_batches(self, bench: Bench) -> None:
        jobs = [bench.job() for _ in range(60)]
        for number in range(3):
            await relay(bench, number + 1, *jobs[20 * number : 20 * number + 20])
        assert await bench.hand().drain(7) == [job.id for job in jobs]


@asynchronous
class TestRelayedTwice:
    async def test_a_job_whose_id_is_there_is_the_same_job(self, bench: Bench) -> None:
        job = bench.job()
        await bench.put(job)
        assert await relay(bench, 1, job) == [Enqueued(job.id, True, State.ready)]
        assert await marks(bench) == {"orders": b"1"}

    async def test_a_held_unique_key_answers_its_holder(self, bench: Bench) -> None:
        first, second = bench.job(unique=Unique("k")), bench.job(unique=Unique("k"))
        answers = await relay(bench, 1, first, second)
        assert answers == [Enqueued(first.id, False, State.ready), Enqueued(first.id, True, State.ready)]
        third = bench.job(unique=Unique("k"))
        assert await relay(bench, 2, third) == [Enqueued(first.id, True, State.ready)]
        assert await bench.states([second.id, third.id]) == [None, None]

    async def test_a_child_may_be_relayed_with_its_parent_or_after_it(self, bench: Bench) -> None:
        parent = bench.job()
        child = bench.job(after=(parent.id,))
        await relay(bench, 1, parent, child)
        grandchild = bench.job(after=(child.id,))
        await relay(bench, 2, grandchild)
        assert await bench.states([child.id, grandchild.id]) == [State.blocked, State.blocked]
        assert await bench.hand().drain() == [parent.id, child.id, grandchild.id]


@asynchronous
class TestRefusedRelay:
    async def test_a_refused_batch_stores_nothing_and_leaves_the_mark(self, bench: Bench) -> None:
        await relay(bench, 1, bench.job())
        good, orphan = bench.job(), bench.job(after=(bench.id(),))
        with pytest.raises(UnknownParent):
            await relay(bench, 2, good, orphan)
        assert await marks(bench) == {"orders": b"1"}
        assert await bench.states([good.id]) == [None]
        assert await relay(bench, 2, good) is not None

    async def test_a_batch_for_a_draining_queue_is_refused_and_goes_through_later(self, bench: Bench) -> None:
        await bench.change(GateChange("queue:default", drain=True))
        job = bench.job()
        with pytest.raises(QueueDraining):
            await relay(bench, 1, job)
        assert await marks(bench) == {}
        await bench.change(GateChange("queue:default", resume=True))
        assert await relay(bench, 1, job) is not None

    async def test_a_batch_that_has_arrived_is_not_refused_when_it_comes_again(self, bench: Bench) -> None:
        job = bench.job()
        await relay(bench, 1, job)
        await bench.hand().drain()
        bench.clock.advance(30 * 86_400_000)
        while await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms):
            pass
        await bench.change(GateChange("queue:default", drain=True))
        assert await relay(bench, 1, job) is None
