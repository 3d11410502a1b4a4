"""Behaviours of dependencies: released when the last parent succeeds, cancelled when one fails, results handed on."""

from __future__ import annotations

import pytest

from limpet.core.errors import UnknownParent
from limpet.core.flows.refs import MAX_INPUT_BYTES, stands_for
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import IfParentFails, Unique
from limpet.core.jobs.lease import Input, Note
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Query, Retention, Term
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


async def end(bench: Bench, id: bytes, how: str) -> None:
    """Finish the one claimable job: it succeeds with a result, dies, or is cancelled."""
    if how == "cancelled":
        await bench.cancel(id)
        return
    hand = bench.hand("parent")
    job = await hand.take()
    assert job.id == id
    await (hand.succeed(job, result=b"42") if how == "succeeded" else hand.bury(job))


@asynchronous
class TestDependencies:
    async def test_a_dependent_waits_until_its_parent_succeeds(self, bench: Bench) -> None:
        parent = await bench.add()
        job = bench.job(after=(parent,))
        assert (await bench.put(job))[0].state is State.blocked
        hand = bench.hand()
        claimed = await hand.take()
        assert await hand.claim() == []
        await hand.succeed(claimed)
        assert await bench.state(job.id) is State.ready
        assert await hand.ids() == [job.id]
        assert (await bench.view(job.id)).after == (parent,)

    async def test_a_dependent_waits_for_all_of_its_parents(self, bench: Bench) -> None:
        parents = await bench.add_many(3)
        child = await bench.add(after=tuple(parents))
        hand = bench.hand()
        for claimed in await hand.claim(3):
            assert await bench.state(child) is State.blocked
            await hand.succeed(claimed)
        assert await bench.state(child) is State.ready

    async def test_parents_that_succeed_in_one_settlement_release_once(self, bench: Bench) -> None:
        parents = await bench.add_many(3)
        child = await bench.add(after=tuple(parents))
        hand = bench.hand()
        await hand.succeed(*await hand.claim(3))
        assert await hand.ids(5) == [child]

    async def test_a_parent_named_twice_counts_once(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent, parent))
        hand = bench.hand()
        await hand.succeed(await hand.take())
        assert await hand.ids() == [child]

    async def test_inputs_carry_the_results_of_the_parents(self, bench: Bench) -> None:
        one, two = await bench.add(task="one"), await bench.add(task="two")
        await bench.add(after=(one, two))
        hand = bench.hand()
        for claimed in await hand.claim(2):
            await hand.succeed(claimed, result=b'"one"' if claimed.id == one else None)
        inputs = (await hand.take()).inputs
        assert inputs == {one: Input(result=b'"one"'), two: Input(result=None)}

    async def test_a_claim_names_the_parents_as_the_job_named_them(self, bench: Bench) -> None:
        parents = await bench.add_many(40)
        order = tuple(parents[::2] + parents[::-2])
        await bench.add(after=order)
        hand = bench.hand()
        await hand.succeed(*await hand.claim(40))
        assert (await hand.take()).after == order

    async def test_results_that_are_too_much_together_are_not_handed_out(self, bench: Bench) -> None:
        parents = await bench.add_many(70, task="heavy")
        child = await bench.add(after=tuple(parents))
        hand = bench.hand()
        for job in await hand.claim(70):
            await hand.succeed(job, result=b'"%s"' % (b"x" * (MAX_INPUT_BYTES // 69)))
        claimed = await hand.take()
        assert (claimed.id, claimed.after, claimed.inputs) == (child, tuple(parents), {})

    async def test_inputs_are_there_again_for_the_next_attempt(self, bench: Bench) -> None:
        parent = await bench.add()
        await bench.add(after=(parent,))
        await end(bench, parent, "succeeded")
        hand = bench.hand()
        await hand.fail(await hand.take())
        assert (await hand.take()).inputs == {parent: Input(result=b"42")}

    async def test_a_parent_that_has_succeeded_already_is_satisfied(self, bench: Bench) -> None:
        parent = await bench.add()
        await end(bench, parent, "succeeded")
        job = bench.job(after=(parent,))
        assert (await bench.put(job))[0].state is State.ready
        assert (await bench.hand().take()).inputs == {parent: Input(result=b"42")}

    async def test_parents_may_be_of_the_same_call_in_any_order(self, bench: Bench) -> None:
        a, b = bench.job(), bench.job()
        c = bench.job(after=(a.id, b.id))
        d = bench.job(after=(c.id,))
        answers = await bench.put(d, b, c, a)
        assert [answer.state for answer in answers] == [State.blocked, State.ready, State.blocked, State.ready]
        assert await bench.hand().drain(5) == [a.id, b.id, c.id, d.id]

    async def test_an_unknown_parent_is_refused(self, bench: Bench) -> None:
        with pytest.raises(UnknownParent):
            await bench.put(bench.job(after=(await bench.add(), bench.id())))

    async def test_a_repeated_enqueue_is_answered_though_its_parent_is_gone(self, bench: Bench) -> None:
        parent = await bench.add()
        child = bench.job(after=(parent,))
        await bench.put(child)
        await end(bench, parent, "dead")
        await bench.store.discard([parent], now_ms=bench.clock.now_ms)
        assert (await bench.put(child))[0].existing

    async def test_a_child_of_a_repeated_parent_that_is_gone_goes_by_how_that_one_ended(self, bench: Bench) -> None:
        parents = {how: bench.job(priority=n) for n, how in enumerate(["succeeded", "dead"])}
        await bench.put(*parents.values())
        for how, parent in parents.items():
            await end(bench, parent.id, how)
        await bench.store.discard([parents["dead"].id], now_ms=bench.clock.now_ms)
        await bench.store.prune(Retention(succeeded_ms=0), now_ms=bench.clock.now_ms)
        states = []
        for parent in parents.values():
            again, child = await bench.put(parent, bench.job(after=(parent.id,)))
            assert again.existing
            states.append(child.state)
        assert states == [State.ready, State.cancelled]

    async def test_a_parent_named_by_the_id_of_a_duplicate_is_the_job_that_is_there(self, bench: Bench) -> None:
        key = Unique("fetch")
        there = await bench.add(task="fetch", unique=key)
        again = bench.job(task="fetch", unique=key)
        child = bench.job(after=(again.id,))
        answers = await bench.put(again, child)
        assert [answer.id for answer in answers] == [there, child.id]
        assert await bench.hand().drain(1) == [there, child.id]

    async def test_jobs_that_stand_for_parents_are_noted_with_the_child(self, bench: Bench) -> None:
        keys = [Unique(name) for name in ("one", "two")]
        there = [await bench.add(task="fetch", unique=key) for key in keys]
        again = [bench.job(task="fetch", unique=key) for key in keys]
        other = bench.job(task="other")
        child = bench.job(after=(again[1].id, other.id, again[0].id))
        await bench.put(*again, other, child)
        hand = bench.hand()
        for claimed in await hand.claim(3):
            await hand.succeed(claimed, result=b"%d" % [*there, other.id].index(claimed.id))
        found = await hand.take()
        assert found.after == (again[1].id, other.id, again[0].id)
        assert {id: given.result for id, given in found.inputs.items()} == {
            there[0]: b"0",
            there[1]: b"1",
            other.id: b"2",
        }
        expected = tuple(
            Note(*stands_for(named.id, id))
            for named, id in sorted(zip(again, there, strict=True), key=lambda pair: pair[0].id)
        )
        assert found.notes == expected
        (view,) = (await bench.store.find(Query(terms=(Term("id", id_text(child.id)),)))).jobs
        assert view.notes == expected

    async def test_a_child_of_parents_that_stand_for_themselves_has_no_notes(self, bench: Bench) -> None:
        parent = bench.job(task="fetch", unique=Unique("k"))
        await bench.put(parent, bench.job(after=(parent.id,)))
        hand = bench.hand()
        await hand.succeed(await hand.take())
        assert (await hand.take()).notes == ()

    async def test_a_released_dependent_keeps_its_delay(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,), delay_ms=60_000)
        due_at_ms = bench.clock.now_ms + 60_000
        await end(bench, parent, "succeeded")
        view = await bench.view(child)
        assert (view.state, view.due_at_ms) == (State.scheduled, due_at_ms)
        bench.clock.advance(60_000)
        assert await bench.hand().ids() == [child]

    async def test_a_parent_that_is_retried_releases_nobody_yet(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = bench.hand()
        await hand.fail(await hand.take(), delay_ms=1_000)
        assert await bench.state(child) is State.blocked
        bench.clock.advance(1_000)
        assert await hand.drain() == [parent, child]

    async def test_one_parent_of_very_many_releases_them_all(self, bench: Bench) -> None:
        parent = await bench.add()
        children = await bench.add_many(700, after=(parent,))
        await end(bench, parent, "succeeded")
        assert sorted(await bench.hand().drain(100)) == children

    async def test_a_chain_runs_in_order(self, bench: Bench) -> None:
        jobs = [bench.job()]
        for _ in range(9):
            jobs.append(bench.job(after=(jobs[-1].id,)))
        await bench.put(*jobs)
        assert await bench.hand().drain() == [job.id for job in jobs]


@asynchronous
class TestFailedParents:
    @pytest.mark.parametrize("how", ["dead", "cancelled"])
    async def test_a_failed_parent_cancels_its_dependents_through_all_levels(self, bench: Bench, how: str) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        bystander = await bench.add(delay_ms=1_000)
        await end(bench, parent, how)
        assert await bench.states([child, grandchild, bystander]) == [
            State.cancelled,
            State.cancelled,
            State.scheduled,
        ]
        for id in (child, grandchild):
            view = await bench.view(id)
            assert "parent" in view.reason
            assert view.finished_at_ms == bench.clock.now_ms

    async def test_one_failed_parent_of_several_is_enough(self, bench: Bench) -> None:
        parents = await bench.add_many(3)
        child = await bench.add(after=tuple(parents))
        await end(bench, parents[0], "dead")
        assert await bench.state(child) is State.cancelled
        hand = bench.hand()
        await hand.succeed(*await hand.claim(5))
        assert await bench.state(child) is State.cancelled

    async def test_a_cascade_reaches_very_many(self, bench: Bench) -> None:
        parent = await bench.add()
        children = await bench.add_many(700, after=(parent,))
        last = await bench.add(after=(children[-1],))
        await bench.cancel(parent)
        assert set(await bench.states([*children, last])) == {State.cancelled}

    async def test_very_many_dependents_of_a_job_that_was_asked_to_stop_never_run(self, bench: Bench) -> None:
        """More than some engines cancel in one step, and the job succeeds all the same before the next one."""
        parent = await bench.add()
        children = await bench.add_many(1_100, after=(parent,))
        anyway = await bench.add_many(20, after=(parent,), if_parent_fails="run")
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(parent) == ["cancelling"]
        await hand.succeed(job)
        assert sorted(await hand.drain(100)) == anyway
        assert set(await bench.states(children)) == {State.cancelled}

    @pytest.mark.parametrize("how", ["dead", "cancelled"])
    async def test_a_dependent_that_wants_to_run_anyway_is_told_why_there_is_no_result(
        self, bench: Bench, how: str
    ) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,), if_parent_fails="run")
        await end(bench, parent, how)
        job = await bench.hand().take()
        assert job.id == child
        assert job.inputs[parent].result is None
        assert job.inputs[parent].failed

    async def test_dependents_of_two_parents_that_fail_at_once_are_each_released_once(self, bench: Bench) -> None:
        root = await bench.add(task="root")
        middle = await bench.add(task="middle", after=(root,))
        children = await bench.add_many(300, after=(root, middle), if_parent_fails="run")
        await end(bench, root, "dead")
        assert (await bench.store.count()).total(State.ready) == 300
        assert await bench.hand().drain(100) == children

    async def test_a_dependent_of_very_many_parents_that_fail_at_once_is_released_once(self, bench: Bench) -> None:
        root = await bench.add(task="root")
        parents = await bench.add_many(300, task="middle", after=(root,))
        child = await bench.add(after=tuple(parents), if_parent_fails="run")
        await end(bench, root, "dead")
        assert (await bench.store.count()).total(State.ready) == 1
        assert await bench.hand().drain() == [child]

    async def test_a_dependent_that_runs_anyway_still_waits_for_the_others(self, bench: Bench) -> None:
        failing, other = await bench.add(priority=0), await bench.add(task="other")
        child = await bench.add(after=(failing, other), if_parent_fails="run")
        await end(bench, failing, "dead")
        assert await bench.state(child) is State.blocked
        await end(bench, other, "succeeded")
        inputs = (await bench.hand().take()).inputs
        assert inputs[failing].failed
        assert inputs[other] == Input(result=b"42")

    async def test_a_dependent_that_waits_runs_when_the_parent_is_retried_and_succeeds(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,), if_parent_fails="wait")
        await end(bench, parent, "dead")
        assert await bench.state(child) is State.blocked
        await bench.retry(parent)
        await end(bench, parent, "succeeded")
        assert await bench.hand().ids() == [child]

    async def test_a_dependent_that_waits_stays_when_the_parent_is_cancelled(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,), if_parent_fails="wait")
        await end(bench, parent, "cancelled")
        assert await bench.state(child) is State.blocked

    @pytest.mark.parametrize("how", ["dead", "cancelled"])
    @pytest.mark.parametrize(
        ("if_parent_fails", "expected"),
        [("cancel", State.cancelled), ("run", State.ready), ("wait", State.blocked)],
    )
    async def test_a_parent_that_had_failed_before_is_treated_as_one_that_fails_now(
        self, bench: Bench, how: str, if_parent_fails: IfParentFails, expected: State
    ) -> None:
        parent = await bench.add()
        await end(bench, parent, how)
        job = bench.job(after=(parent,), if_parent_fails=if_parent_fails)
        assert (await bench.put(job))[0].state is expected
        assert await bench.state(job.id) is expected
        if expected is State.ready:
            assert (await bench.hand().take()).inputs[parent].failed

    async def test_a_dependent_enqueued_after_a_death_is_revived_by_the_parents_retry(self, bench: Bench) -> None:
        parent = await bench.add()
        await end(bench, parent, "dead")
        cancelled = await bench.add(after=(parent,))
        waiting = await bench.add(after=(parent,), if_parent_fails="wait")
        await bench.retry(parent)
        assert await bench.states([cancelled, waiting]) == [State.blocked] * 2
        assert await bench.hand().drain(1) == [parent, cancelled, waiting]

    async def test_a_cancelled_dependents_own_dependents_may_run_anyway(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        cleaner = await bench.add(after=(child,), if_parent_fails="run")
        await end(bench, parent, "dead")
        assert await bench.states([child, cleaner]) == [State.cancelled, State.ready]
