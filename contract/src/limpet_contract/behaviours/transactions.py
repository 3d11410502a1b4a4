"""Behaviours of a store that joins callers' own transactions: jobs come, and end, with the caller's rows or not at all.

They are apart from the others since not every engine can: one that can (`Features.transactional`) imports them beside
the rest, `from limpet_contract.behaviours.transactions import *`, with a harness that is `Transactional`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import pytest_asyncio
from msgspec.structs import replace

from limpet.core.endings.hook import QUEUE
from limpet.core.errors import BatchTooLarge, QueueDraining, QueueFull, UnknownParent, WrongContext
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Enqueued, Job, Unique
from limpet.core.jobs.lease import Claimed, Input, Takes
from limpet.core.jobs.state import FINISHED, State
from limpet.stores.base import MAX_BATCH_JOBS
from limpet.stores.callers import is_awaitable, run_here
from limpet_contract.behaviours.fixture import bench
from limpet_contract.behaviours.hooks import once, publish, told
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.behaviours.wakeups import asleep, wakes
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS, Hand
from limpet_contract.harness import Visitor

__all__ = ["TestCompleting", "TestJoining", "bench", "visitor"]

# How the lease of a dead or stopping holder ends, beyond what a holder says itself.
OTHERS_END_IT: dict[str, Callable[[Bench, Hand, Claimed], Awaitable[object]]] = {
    "swept": lambda bench, hand, job: bench.lose(job.id, bench.hand("other")),
    "left": lambda bench, hand, job: hand.leave(),
    "cancelled by force": lambda bench, hand, job: bench.cancel(job.id, force=True),
}


@pytest_asyncio.fixture
async def visitor(bench: Bench) -> AsyncIterator[Visitor]:
    """A caller with a connection of its own to the database of the store under test."""
    visitor = await bench.visit()
    yield visitor
    await visitor.close()


async def put_on(visitor: Visitor, bench: Bench, *jobs: Job, rules: Sequence[GateRule] = ()) -> list[Enqueued]:
    """Enqueue in the visitor's transaction."""
    return await bench.joined.enqueue_on(visitor.conn, jobs, rules, now_ms=bench.clock.now_ms)


async def complete(visitor: Visitor, bench: Bench, job: Claimed, result: bytes | None = None) -> bool:
    """Say in the visitor's transaction that the job has succeeded."""
    return await bench.joined.settle_on(visitor.conn, job.id, job.token, result, now_ms=bench.clock.now_ms)


async def completed(visitor: Visitor, bench: Bench, job: Claimed, result: bytes | None = None) -> None:
    """The same, with a row of the visitor's own, and committed."""
    await visitor.begin()
    await visitor.write("effect")
    assert await complete(visitor, bench, job, result)
    await visitor.commit()


@asynchronous
class TestJoining:
    async def test_an_engine_with_these_behaviours_says_so(self, bench: Bench) -> None:
        assert bench.store.features.transactional

    async def test_a_job_is_there_when_the_caller_commits_and_not_before(self, bench: Bench, visitor: Visitor) -> None:
        job = bench.job(args=b'{"n":1}')
        await visitor.begin()
        await visitor.write("order")
        (answer,) = await put_on(visitor, bench, job)
        assert (answer.id, answer.existing) == (job.id, False)
        assert await bench.store.get([job.id]) == [None]
        await visitor.commit()
        assert await visitor.rows() == ["order"]
        view = await bench.view(job.id)
        assert (view.args, view.enqueued_at_ms) == (b'{"n":1}', bench.clock.now_ms)
        assert await bench.hand().ids() == [job.id]

    async def test_a_job_goes_to_no_sleeper_before_the_commit_and_no_later_one_passes_it(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        hand = bench.hand(takes=Takes(10, 10))
        await asleep(hand)
        first = bench.job(task="first")
        await visitor.begin()
        await visitor.write("order")
        (answer,) = await put_on(visitor, bench, first)
        assert answer.state is State.ready
        await visitor.commit()
        (answer,) = await bench.put(bench.job(task="second"))
        assert answer.state is State.ready
        assert (await hand.ids(2))[0] == first.id

    async def test_a_job_goes_when_the_caller_rolls_back(self, bench: Bench, visitor: Visitor) -> None:
        job = bench.job(limits=("smtp",))
        await visitor.begin()
        await visitor.write("order")
        await put_on(visitor, bench, job, rules=[GateRule("limit:smtp", concurrency=1)])
        await visitor.rollback()
        assert await visitor.rows() == []
        assert await bench.store.get([job.id]) == [None]
        assert (await bench.store.count()).enqueued == 0
        assert await bench.hand().claim() == []
        assert not (await put_again(bench, job)).existing

    async def test_the_job_may_come_before_the_callers_rows(self, bench: Bench, visitor: Visitor) -> None:
        for name, end in (("undone", visitor.rollback), ("done", visitor.commit)):
            await visitor.begin()
            await put_on(visitor, bench, bench.job(task=name))
            await visitor.write(name)
            await end()
        assert await visitor.rows() == ["done"]
        assert [job.lane.task for job in await bench.hand().claim(5)] == ["done"]

    async def test_several_calls_of_one_transaction_come_together(self, bench: Bench, visitor: Visitor) -> None:
        jobs = [bench.job(queue=f"q{number % 3}") for number in range(30)]
        await visitor.begin()
        for start in range(0, 30, 10):
            await put_on(visitor, bench, *jobs[start : start + 10])
        await visitor.commit()
        assert len(await bench.hand().ids(100)) == 30

    async def test_a_transaction_may_hold_no_jobs(self, bench: Bench, visitor: Visitor) -> None:
        await visitor.begin()
        await visitor.write("order")
        assert await put_on(visitor, bench) == []
        await visitor.commit()
        assert await visitor.rows() == ["order"]

    @pytest.mark.parametrize("delay_ms", [0, 60_000])
    async def test_a_job_is_due_when_it_was_asked_for(self, bench: Bench, visitor: Visitor, delay_ms: int) -> None:
        await visitor.begin()
        await put_on(visitor, bench, bench.job(delay_ms=delay_ms))
        await visitor.commit()
        hand = bench.hand()
        assert len(await hand.claim()) == (0 if delay_ms else 1)
        bench.clock.advance(delay_ms)
        assert len(await hand.claim()) == (1 if delay_ms else 0)

    async def test_the_same_id_is_the_same_job(self, bench: Bench, visitor: Visitor) -> None:
        stored, new = bench.job(), bench.job()
        await bench.put(stored)
        await visitor.begin()
        first = await put_on(visitor, bench, stored, new)
        again = await put_on(visitor, bench, stored, new)
        await visitor.commit()
        assert [(each.id, each.existing) for each in first] == [(stored.id, True), (new.id, False)]
        assert [(each.id, each.existing) for each in again] == [(stored.id, True), (new.id, True)]
        assert (await bench.store.count()).enqueued == 2

    async def test_a_unique_key_is_held_from_the_commit_on(self, bench: Bench, visitor: Visitor) -> None:
        await visitor.begin()
        (first,) = await put_on(visitor, bench, bench.job(unique=Unique("k")))
        (second,) = await put_on(visitor, bench, bench.job(unique=Unique("k")))
        await visitor.commit()
        (third,) = await bench.put(bench.job(unique=Unique("k")))
        assert not first.existing
        assert [(each.id, each.existing) for each in (second, third)] == [(first.id, True)] * 2

    async def test_a_unique_key_that_is_held_answers_its_holder(self, bench: Bench, visitor: Visitor) -> None:
        holder = await bench.add(unique=Unique("k"))
        await visitor.begin()
        await visitor.write("order")
        (answer,) = await put_on(visitor, bench, bench.job(unique=Unique("k")))
        await visitor.commit()
        assert (answer.id, answer.existing) == (holder, True)
        assert await visitor.rows() == ["order"]

    async def test_a_unique_key_is_free_after_a_rollback(self, bench: Bench, visitor: Visitor) -> None:
        await visitor.begin()
        await put_on(visitor, bench, bench.job(unique=Unique("k")))
        await visitor.rollback()
        (answer,) = await bench.put(bench.job(unique=Unique("k")))
        assert not answer.existing

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_replacement_comes_and_goes_with_the_transaction(
        self, bench: Bench, visitor: Visitor, kept: bool
    ) -> None:
        old = await bench.add(unique=Unique("k"), args=b"1")
        await visitor.begin()
        await put_on(visitor, bench, bench.job(unique=Unique("k", on_duplicate="replace"), args=b"2"))
        await (visitor.commit() if kept else visitor.rollback())
        assert (await bench.view(old)).args == (b"2" if kept else b"1")
        assert await bench.hand().ids(5) == [old]

    async def test_a_job_waits_for_the_parents_it_names(self, bench: Bench, visitor: Visitor) -> None:
        stored = await bench.add(task="stored")
        new, child = bench.job(task="new"), bench.job(task="child", after=(stored,))
        grandchild = bench.job(task="grandchild", after=(new.id, child.id))
        await visitor.begin()
        await put_on(visitor, bench, new)
        await put_on(visitor, bench, child, grandchild)
        await visitor.commit()
        hand, order = bench.hand(), list[str]()
        while jobs := await hand.claim(5):
            order += sorted(job.lane.task for job in jobs)
            await hand.succeed(*jobs)
        assert order == ["new", "stored", "child", "grandchild"]

    async def test_a_parent_that_has_succeeded_holds_nobody_up(self, bench: Bench, visitor: Visitor) -> None:
        hand = bench.hand()
        parent = await bench.add()
        await hand.succeed(await hand.take(), result=b"42")
        await visitor.begin()
        await put_on(visitor, bench, bench.job(task="child", after=(parent,)))
        await visitor.commit()
        assert (await hand.take()).inputs == {parent: Input(result=b"42")}

    async def test_a_parent_that_failed_takes_its_child_along(self, bench: Bench, visitor: Visitor) -> None:
        hand = bench.hand()
        parent = await bench.add()
        await hand.bury(await hand.take())
        child = bench.job(after=(parent,))
        grandchild = bench.job(after=(child.id,))
        await visitor.begin()
        await put_on(visitor, bench, child, grandchild)
        await visitor.commit()
        assert await hand.claim() == []
        assert await bench.states([child.id, grandchild.id]) == [State.cancelled] * 2
        await bench.retry(parent)
        assert await hand.drain(1) == [parent, child.id, grandchild.id]

    async def test_hooks_hear_of_a_job_that_ends_as_it_comes_when_the_caller_commits(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        await publish(bench, State.cancelled)
        hand = bench.hand(queues=("default",))
        parent = await bench.add()
        await hand.bury(await hand.take())
        for end in (visitor.rollback, visitor.commit):
            child = bench.job(after=(parent,))
            await visitor.begin()
            await put_on(visitor, bench, child)
            await end()
        assert await hand.claim() == []
        assert await told(bench) == once([child.id], State.cancelled)
        assert len(await bench.hand("hooked", queues=(QUEUE,)).claim(2)) == 1

    async def test_an_unknown_parent_is_refused_and_the_transaction_goes_on(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        await visitor.begin()
        await visitor.write("before")
        with pytest.raises(UnknownParent, match="item 1"):
            await put_on(visitor, bench, bench.job(), bench.job(after=(bench.id(),)))
        await visitor.write("after")
        (answer,) = await put_on(visitor, bench, bench.job())
        await visitor.commit()
        assert await visitor.rows() == ["after", "before"]
        assert await bench.hand().ids(5) == [answer.id]

    async def test_a_draining_queue_is_refused_and_the_transaction_goes_on(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        await bench.add(queue="full")
        await bench.change(GateChange("queue:full", drain=True))
        await visitor.begin()
        await visitor.write("before")
        with pytest.raises(QueueDraining, match="full"):
            await put_on(visitor, bench, bench.job(queue="full"))
        await visitor.write("after")
        await visitor.commit()
        assert await visitor.rows() == ["after", "before"]
        assert (await bench.store.count()).enqueued == 1

    async def test_a_full_queue_is_refused_and_the_transaction_goes_on(self, bench: Bench, visitor: Visitor) -> None:
        await bench.change(GateChange("queue:full", rule=GateRule("queue:full", depth=2)))
        await bench.add(queue="full")
        await visitor.begin()
        await visitor.write("before")
        await put_on(visitor, bench, bench.job(queue="full"))
        with pytest.raises(QueueFull, match="its depth is 2, 2 wait"):  # its own jobs count
            await put_on(visitor, bench, bench.job(queue="full"))
        await visitor.write("after")
        await visitor.commit()
        assert await visitor.rows() == ["after", "before"]
        assert (await bench.store.count()).enqueued == 2
        with pytest.raises(QueueFull):
            await bench.put(bench.job(queue="full"))

    async def test_a_batch_over_the_bound_is_refused(self, bench: Bench, visitor: Visitor) -> None:
        job = bench.job()
        await visitor.begin()
        with pytest.raises(BatchTooLarge):
            await put_on(visitor, bench, *[job] * (MAX_BATCH_JOBS + 1))
        await visitor.rollback()

    async def test_limits_that_come_with_the_jobs_hold(self, bench: Bench, visitor: Visitor) -> None:
        await visitor.begin()
        jobs = [bench.job(limits=("smtp",)) for _ in range(3)]
        await put_on(visitor, bench, *jobs, rules=[GateRule("limit:smtp", concurrency=1)])
        await visitor.commit()
        hand = bench.hand()
        assert [len(await hand.claim(5)), len(await hand.claim(5))] == [1, 0]

    async def test_code_without_an_event_loop_joins_too(self, bench: Bench, visitor: Visitor) -> None:
        """In a thread of its own, with a handle that has joined nothing before."""
        job, joined = bench.job(), (await bench.other()).joined
        if is_awaitable(visitor.conn):
            with pytest.raises(WrongContext, match="can only be awaited"):
                run_here(joined.enqueue_on(visitor.conn, [job]), visitor.conn, instead="await it")
            return

        def plain() -> None:
            mine = asyncio.run(bench.visit())
            asyncio.run(mine.begin())
            asyncio.run(mine.write("order"))
            run_here(joined.enqueue_on(mine.conn, [job]), mine.conn, instead="await it")
            assert not run_here(joined.settle_on(mine.conn, job.id, 1), mine.conn, instead="await it")
            asyncio.run(mine.commit())
            asyncio.run(mine.close())

        await asyncio.to_thread(plain)
        assert await bench.hand().ids() == [job.id]

    async def test_a_sleeping_worker_notices_the_commit(self, bench: Bench, visitor: Visitor) -> None:
        hand = bench.hand()
        await asleep(hand)

        async def commit() -> None:
            await visitor.begin()
            await put_on(visitor, bench, bench.job())
            await visitor.commit()

        assert await wakes(hand, commit)
        assert len(await hand.claim()) == 1


async def put_again(bench: Bench, job: Job) -> Enqueued:
    return (await bench.put(job))[0]


@asynchronous
class TestCompleting:
    async def test_whatever_its_holder_says_afterwards_the_job_has_succeeded(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        hand = bench.hand()
        for number, ending in enumerate(ENDINGS, 1):
            id = await bench.add()
            job = await hand.take()
            await completed(visitor, bench, job, b'"noted"')
            assert await visitor.rows() == ["effect"] * number
            assert await bench.state(id) is State.running, ending
            (answer,) = await hand.end(ending, job)
            assert (answer.answer, answer.state) == ("done", State.succeeded), ending
            view = await bench.view(id)
            assert (view.state, view.result, view.lost, view.token) == (State.succeeded, b'"noted"', 0, None), ending
            counts = await bench.store.count()
            assert (counts.succeeded, counts.lost, counts.cancelled) == (number, 0, 0), ending
            assert await bench.store.causes() == [], ending
            assert (await hand.end(ending, job))[0].answer == "stale", ending

    @pytest.mark.parametrize("how", OTHERS_END_IT)
    async def test_whoever_ends_its_lease_the_job_has_succeeded(self, bench: Bench, visitor: Visitor, how: str) -> None:
        id = await bench.add()
        hand = bench.hand(ttl_ms=2_000)
        job = await hand.take()
        await completed(visitor, bench, job, b'"noted"')
        answer = await OTHERS_END_IT[how](bench, hand, job)
        assert answer == (["finished"] if how == "cancelled by force" else None)
        view = await bench.view(id)
        assert (view.state, view.result, view.lost, view.attempt) == (State.succeeded, b'"noted"', 0, 1)
        assert (await bench.store.count()).lost == 0
        assert await bench.hand("next").claim() == []

    @pytest.mark.parametrize("how", OTHERS_END_IT)
    async def test_hooks_hear_of_the_success_once_its_lease_ends(
        self, bench: Bench, visitor: Visitor, how: str
    ) -> None:
        await publish(bench, *FINISHED)
        id = await bench.add()
        hand = bench.hand(ttl_ms=2_000, queues=("default",))
        job = await hand.take()
        await completed(visitor, bench, job, b'"noted"')
        assert await told(bench) == Counter()
        await OTHERS_END_IT[how](bench, hand, job)
        assert await told(bench) == once([id], State.succeeded)

    async def test_a_request_to_stop_comes_too_late(self, bench: Bench, visitor: Visitor) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(id) == ["cancelling"]
        await completed(visitor, bench, job)
        await hand.drop(job, "cancelled on request")
        assert await bench.state(id) is State.succeeded

    @pytest.mark.parametrize("ending", ["succeed", "fail", "lose"])
    async def test_a_transaction_that_is_rolled_back_never_was(
        self, bench: Bench, visitor: Visitor, ending: str
    ) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await visitor.begin()
        await visitor.write("effect")
        assert await complete(visitor, bench, job, b'"noted"')
        await visitor.rollback()
        assert await visitor.rows() == []
        (answer,) = await hand.end(ending, job)
        view = await bench.view(id)
        expected = {"succeed": State.succeeded, "fail": State.scheduled, "lose": State.ready}[ending]
        assert (answer.state, view.state, view.lost) == (expected, expected, 1 if ending == "lose" else 0)
        assert view.result == (b'"late"' if ending == "succeed" else None)

    async def test_the_result_is_the_one_that_was_noted(self, bench: Bench, visitor: Visitor) -> None:
        hand = bench.hand()
        for result in (None, b"null", b'{"n":1}', b'"' + b"x" * 100_000 + b'"'):
            id = await bench.add()
            job = await hand.take()
            await completed(visitor, bench, job, result)
            await hand.succeed(job, result=b'"returned"')
            assert (await bench.view(id)).result in ((None, b"null") if result in (None, b"null") else (result,))

    async def test_said_twice_the_last_result_counts(self, bench: Bench, visitor: Visitor) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await completed(visitor, bench, job, b"1")
        await visitor.begin()
        assert await complete(visitor, bench, job, b"2")
        assert await complete(visitor, bench, job, b"3")
        await visitor.commit()
        await hand.release(job)
        assert (await bench.view(id)).result == b"3"

    @pytest.mark.parametrize("fate", ["waiting again", "taken over", "succeeded", "cancelled by force", "swept"])
    async def test_a_stale_token_is_told_and_changes_nothing(self, bench: Bench, visitor: Visitor, fate: str) -> None:
        id = await bench.add()
        late, other = bench.hand("late", ttl_ms=2_000), bench.hand("other")
        job = await late.take()
        if fate == "cancelled by force":
            await bench.cancel(id, force=True)
        elif fate == "swept":
            await bench.lose(id, other)
        else:
            await late.release(job)
        if fate in ("taken over", "succeeded"):
            again = await other.take()
            if fate == "succeeded":
                await other.succeed(again, result=b'"good"')
        before = await bench.view(id)
        await visitor.begin()
        assert not await complete(visitor, bench, job, b'"late"')
        await visitor.commit()  # one who rolls back as it should changes even less
        assert await bench.view(id) == before
        if fate == "taken over":
            await other.fail(again)
            assert await bench.state(id) is State.ready

    async def test_a_token_that_was_never_given_is_stale(self, bench: Bench, visitor: Visitor) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await visitor.begin()
        for wrong in (replace(job, token=job.token + 1), replace(job, token=0), replace(job, id=bench.id())):
            assert not await complete(visitor, bench, wrong)
        await visitor.commit()
        await hand.release(job)
        assert await bench.state(id) is State.ready

    async def test_dependents_are_released_with_what_was_noted(self, bench: Bench, visitor: Visitor) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = bench.hand(ttl_ms=2_000)
        await completed(visitor, bench, await hand.take(), b"42")
        assert await bench.state(child) is State.blocked
        await bench.lose(parent, bench.hand("other"))
        job = await bench.hand("next").take()
        assert (job.id, job.inputs) == (child, {parent: Input(result=b"42")})

    async def test_what_its_gates_were_charged_comes_back(self, bench: Bench, visitor: Visitor) -> None:
        rules = [GateRule("limit:smtp", concurrency=1)]
        await bench.put(*(bench.job(limits=("smtp",)) for _ in range(2)), rules=rules)
        hand = bench.hand()
        job = await hand.take()
        await completed(visitor, bench, job)
        assert await hand.claim() == []
        await hand.release(job)
        assert len(await hand.claim()) == 1

    async def test_neighbours_under_the_same_token_are_none_of_its_business(
        self, bench: Bench, visitor: Visitor
    ) -> None:
        ids = await bench.add_many(3)
        jobs = await bench.hand(ttl_ms=2_000).claim(3)
        await completed(visitor, bench, jobs[1], b"1")
        await bench.lose(ids[0], bench.hand("other"))
        assert await bench.states(ids) == [State.ready, State.succeeded, State.ready]
        assert (await bench.store.count()).lost == 2

    async def test_several_jobs_may_end_in_one_transaction(self, bench: Bench, visitor: Visitor) -> None:
        ids = await bench.add_many(2)
        jobs = await bench.hand(ttl_ms=2_000).claim(2)
        await visitor.begin()
        for job in jobs:
            assert await complete(visitor, bench, job)
        await visitor.commit()
        await bench.lose(ids[0], bench.hand("other"))
        assert await bench.states(ids) == [State.succeeded] * 2

    async def test_a_job_may_end_and_ask_for_the_next_in_one_transaction(self, bench: Bench, visitor: Visitor) -> None:
        id = await bench.add()
        hand, following = bench.hand(), bench.job(task="next")
        job = await hand.take()
        await visitor.begin()
        assert await complete(visitor, bench, job)
        await put_on(visitor, bench, following)
        await visitor.commit()
        await hand.succeed(job)
        assert await bench.states([id, following.id]) == [State.succeeded, State.ready]

    async def test_a_settlement_asked_again_gets_its_answer_again(self, bench: Bench, visitor: Visitor) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await completed(visitor, bench, job)
        seq = 1 << 40
        first = await hand.settle(ENDINGS["fail"](job), seq=seq)
        assert await hand.settle(ENDINGS["fail"](job), seq=seq) == first
        assert await bench.state(id) is State.succeeded
