"""Behaviours of enqueue: all or nothing, the same id is the same job, and bad items are named."""

from __future__ import annotations

import re

import pytest

from limpet.core.errors import BatchTooLarge, QueueDraining, UnknownParent
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.stores.base import MAX_BATCH_JOBS
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


def names_index(error: BaseException, index: int) -> bool:
    """True when the message holds that number by itself, not as a part of an id."""
    return re.search(rf"(?<![0-9a-z-]){index}(?![0-9a-z-])", str(error)) is not None


@asynchronous
class TestEnqueue:
    async def test_a_job_is_ready_the_moment_enqueue_returns(self, bench: Bench) -> None:
        job = bench.job(args=b'{"to":"a@b.c"}')
        answer = (await bench.put(job))[0]
        assert (answer.id, answer.existing, answer.state) == (job.id, False, State.ready)
        view = await bench.view(job.id)
        assert (view.state, view.args, view.attempt, view.lost) == (State.ready, b'{"to":"a@b.c"}', 0, 0)
        assert view.enqueued_at_ms == view.due_at_ms == bench.clock.now_ms

    async def test_everything_said_about_a_job_comes_back(self, bench: Bench) -> None:
        flow = bench.id()
        job = bench.job(
            queue="mail",
            task="send",
            priority=3,
            tenant="acme",
            needs=("gpu",),
            limits=("smtp",),
            keys=("customer:acme",),
            breaker="smtp",
            args='{"name":"Zoë"}'.encode(),
            cost=7,
            tags=("a", "b"),
            meta=b'{"trace":"1"}',
            flow=flow,
        )
        await bench.put(job)
        view = await bench.view(job.id)
        assert (view.lane, view.policy, view.args, view.cost) == (job.lane, job.policy, job.args, 7)
        assert (view.tags, view.meta, view.flow) == (("a", "b"), b'{"trace":"1"}', flow)
        claimed = (await bench.hand(capabilities=("gpu",)).claim())[0]
        assert (claimed.lane, claimed.policy, claimed.args, claimed.cost) == (job.lane, job.policy, job.args, 7)
        assert (claimed.tags, claimed.meta, claimed.flow) == (("a", "b"), b'{"trace":"1"}', flow)

    @pytest.mark.parametrize("state", [State.succeeded, State.cancelled])
    async def test_a_finished_job_still_says_what_it_was_asked_with(self, bench: Bench, state: State) -> None:
        parent = await bench.add()
        hand = bench.hand()
        await hand.succeed(await hand.take(), result=b'{"n":1}')
        job = bench.job(
            queue="mail",
            tenant="acme",
            keys=("customer:acme",),
            args=b'{"first":{"$job":0}}',
            cost=7,
            tags=("a",),
            meta=b'{"rerun_of":"x"}',
            unique=Unique("welcome"),
            after=(parent,),
        )
        await bench.put(job)
        if state is State.cancelled:
            await bench.cancel(job.id)
        else:
            await hand.succeed(await hand.take())
        view = await bench.view(job.id)
        assert (view.state, view.lane, view.policy, view.args) == (state, job.lane, job.policy, job.args)
        assert (view.cost, view.tags, view.meta, view.unique, view.after) == (7, ("a",), job.meta, "welcome", (parent,))
        assert (await bench.view(parent)).result == b'{"n":1}'

    async def test_answers_come_in_the_order_of_the_jobs(self, bench: Bench) -> None:
        jobs = [bench.job(queue=f"q{n % 3}", priority=n % 10) for n in range(30)]
        shuffled = jobs[::-1]
        assert [answer.id for answer in await bench.put(*shuffled)] == [job.id for job in shuffled]

    async def test_nothing_enqueued_is_nothing_answered(self, bench: Bench) -> None:
        assert await bench.put() == []

    async def test_the_same_id_again_is_the_same_job(self, bench: Bench) -> None:
        job = bench.job(args=b'{"n":1}')
        await bench.put(job)
        again = (await bench.put(bench.job(id=job.id, args=b'{"n":2}')))[0]
        assert (again.id, again.existing, again.state) == (job.id, True, State.ready)
        assert (await bench.view(job.id)).args == b'{"n":1}'
        assert (await bench.store.count()).enqueued == 1

    async def test_the_same_id_twice_in_one_call_is_one_job(self, bench: Bench) -> None:
        job = bench.job()
        answers = await bench.put(job, job, bench.job(), job)
        assert [answer.existing for answer in answers] == [False, True, False, True]
        assert (await bench.store.count()).enqueued == 2

    @pytest.mark.parametrize("state", [State.running, State.succeeded, State.dead, State.cancelled, State.scheduled])
    async def test_the_same_id_is_the_same_job_in_any_state(self, bench: Bench, state: State) -> None:
        job, hand = bench.job(), bench.hand()
        await bench.put(job)
        if state is State.cancelled:
            await bench.cancel(job.id)
        else:
            claimed = await hand.take()
            if state is State.succeeded:
                await hand.succeed(claimed)
            elif state is State.dead:
                await hand.bury(claimed)
            elif state is State.scheduled:
                await hand.fail(claimed, delay_ms=9_000)
        answer = (await bench.put(job))[0]
        assert (answer.id, answer.existing, answer.state) == (job.id, True, state)
        assert await bench.state(job.id) is state

    async def test_another_handle_sees_what_was_enqueued(self, bench: Bench) -> None:
        id = await bench.add()
        other = await bench.other()
        assert await other.state(id) is State.ready
        assert (await other.put(other.job(id=id)))[0].existing

    async def test_an_unknown_parent_refuses_the_whole_batch_and_names_the_index(self, bench: Bench) -> None:
        jobs = [bench.job(), bench.job(), bench.job(after=(bench.id(),)), bench.job()]
        with pytest.raises(UnknownParent) as refused:
            await bench.put(*jobs)
        assert names_index(refused.value, 2)
        assert await bench.store.get([job.id for job in jobs]) == [None] * 4
        assert (await bench.store.count()).enqueued == 0

    async def test_a_refused_batch_leaves_no_unique_key_no_gate_and_no_queue_behind(self, bench: Bench) -> None:
        key = Unique("k")
        bad = bench.job(after=(bench.id(),))
        with pytest.raises(UnknownParent):
            await bench.put(bench.job(unique=key, queue="new"), bad, rules=[GateRule("limit:new", concurrency=1)])
        assert not (await bench.put(bench.job(unique=key)))[0].existing
        assert [view.queue for view in (await bench.store.count(queues=True)).queues] == ["default"]

    async def test_a_batch_with_a_job_for_a_draining_queue_is_refused_whole(self, bench: Bench) -> None:
        await bench.change(GateChange("queue:old", drain=True))
        jobs = [bench.job(), bench.job(queue="old")]
        with pytest.raises(QueueDraining) as refused:
            await bench.put(*jobs)
        assert names_index(refused.value, 1)
        assert await bench.store.get([job.id for job in jobs]) == [None, None]

    async def test_a_batch_over_the_bound_of_jobs_is_refused(self, bench: Bench) -> None:
        job = bench.job()
        jobs = [bench.job(id=id) for id in bench.ids.make_many(MAX_BATCH_JOBS, bench.clock.now_ms)]
        with pytest.raises(BatchTooLarge):
            await bench.put(job, *jobs)
        assert (await bench.store.count()).enqueued == 0

    async def test_a_batch_over_the_bound_of_bytes_is_refused(self, bench: Bench) -> None:
        args = b'{"x":"' + b"x" * 1_048_576 + b'"}'
        with pytest.raises(BatchTooLarge):
            await bench.put(*(bench.job(args=args) for _ in range(16)))
        assert (await bench.store.count()).enqueued == 0

    async def test_a_large_batch_over_many_lanes_is_stored_whole(self, bench: Bench) -> None:
        jobs = [bench.job(queue=f"q{n % 7}", tenant=f"g{n % 50}", priority=n % 10) for n in range(2_000)]
        answers = await bench.put(*jobs)
        assert [answer.id for answer in answers] == [job.id for job in jobs]
        assert (await bench.store.count()).total(State.ready) == 2_000
        assert sorted(await bench.hand().drain(200)) == [job.id for job in jobs]
