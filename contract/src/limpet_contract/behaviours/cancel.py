"""Behaviours of cancel: waiting jobs at once, running ones by request, and the truth about effects wins."""

from __future__ import annotations

import pytest

from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestCancel:
    async def test_a_ready_job_is_cancelled_at_once(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        assert await bench.cancel(ids[1], reason="changed my mind") == ["cancelled"]
        view = await bench.view(ids[1])
        assert (view.state, view.reason, view.finished_at_ms) == (
            State.cancelled,
            "changed my mind",
            bench.clock.now_ms,
        )
        assert await bench.hand().ids(5) == [ids[0], ids[2]]

    @pytest.mark.parametrize("kind", ["scheduled", "blocked", "retrying"])
    async def test_a_job_that_waits_in_any_way_is_cancelled_at_once(self, bench: Bench, kind: str) -> None:
        hand = bench.hand()
        parent = await bench.add(task="parent")
        claimed = await hand.take()
        if kind == "scheduled":
            id = await bench.add(delay_ms=1_000)
        elif kind == "blocked":
            id = await bench.add(after=(parent,))
        else:
            id = await bench.add()
            await hand.fail(await hand.take(), delay_ms=1_000)
        assert await bench.cancel(id) == ["cancelled"]
        await hand.succeed(claimed)
        bench.clock.advance(5_000)
        assert await hand.claim(5) == []
        assert await bench.state(id) is State.cancelled

    async def test_answers_come_in_order(self, bench: Bench) -> None:
        hand = bench.hand()
        done = await bench.add(task="a")
        await hand.succeed(await hand.take())
        running = await bench.add(task="b")
        await hand.take()
        ready, missing = await bench.add(task="c"), bench.id()
        assert await bench.cancel(missing, done, running, ready) == ["gone", "finished", "cancelling", "cancelled"]

    @pytest.mark.parametrize("how", ["succeeded", "dead", "cancelled"])
    async def test_a_finished_job_is_left_alone(self, bench: Bench, how: str) -> None:
        id = await bench.add()
        hand = bench.hand()
        if how == "cancelled":
            await bench.cancel(id, reason="first")
        else:
            await hand.end("succeed" if how == "succeeded" else "bury", await hand.take())
        before = await bench.view(id)
        assert await bench.cancel(id, reason="second") == ["finished"]
        assert await bench.view(id) == before

    async def test_a_running_job_is_asked_to_stop(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(id) == ["cancelling"]
        view = await bench.view(id)
        assert (view.state, view.cancel_requested, view.token) == (State.running, True, job.token)
        assert (await hand.beat()).cancels == ((id, job.token),)
        assert (await bench.hand("w2").beat()).cancels == ()

    async def test_a_success_that_arrives_after_the_request_wins(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await bench.cancel(id)
        answer = (await hand.succeed(job, result=b"1"))[0]
        assert (answer.answer, answer.state) == ("done", State.succeeded)
        assert (await bench.view(id)).result == b"1"

    @pytest.mark.parametrize("ending", ["fail", "bury", "drop", "release", "snooze", "hold", "lose"])
    async def test_anything_but_success_after_the_request_ends_cancelled(self, bench: Bench, ending: str) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await bench.cancel(id, reason="stop it")
        answer = (await hand.end(ending, job))[0]
        assert (answer.answer, answer.state) == ("done", State.cancelled)
        assert await bench.state(id) is State.cancelled
        bench.clock.advance(3_600_000)
        assert await hand.claim() == []

    @pytest.mark.parametrize("says", ["too fast", "no money"])
    async def test_what_a_job_that_should_stop_was_told_of_a_key_counts_for_the_others(
        self, bench: Bench, says: str
    ) -> None:
        asked, other = await bench.add_many(2, limits=("api",))
        hand = bench.hand()
        job = await hand.take()
        await bench.cancel(asked)
        await (hand.hold if says == "too fast" else hand.trip)(job, "limit:api", 60_000)
        assert await bench.state(asked) is State.cancelled
        assert await hand.claim() == []
        bench.clock.advance(60_000)
        assert await hand.ids() == [other]
        await hand.leave()

    async def test_a_session_that_leaves_takes_no_cancelled_job_back_to_ready(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.take()
        await bench.cancel(id)
        await hand.leave()
        assert await bench.state(id) is State.cancelled

    async def test_force_revokes_the_lease(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(id, force=True, reason="now") == ["cancelled"]
        view = await bench.view(id)
        assert (view.state, view.token, view.reason) == (State.cancelled, None, "now")
        assert await bench.store.held("w1") == []
        assert (await hand.succeed(job))[0].answer == "stale"
        assert await bench.state(id) is State.cancelled

    async def test_force_after_a_request_ends_it_too(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.hand().take()
        assert await bench.cancel(id) == ["cancelling"]
        assert await bench.cancel(id) == ["cancelling"]
        assert await bench.cancel(id, force=True) == ["cancelled"]

    @pytest.mark.parametrize("force", [False, True])
    async def test_a_running_job_that_is_cancelled_without_a_reason_says_so(self, bench: Bench, force: bool) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await bench.cancel(id, force=force, reason="")
        if not force:
            await hand.snooze(job, 1_000)
        assert (await bench.view(id)).reason == "cancelled"
        found = await bench.store.inspect(id)
        assert found is not None
        (record,) = found.attempts
        assert (record.outcome, record.message) == ("cancelled", "cancelled")

    async def test_dependents_are_cancelled_in_the_step_of_the_request(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(parent) == ["cancelling"]
        assert await bench.states([child, grandchild]) == [State.cancelled] * 2
        await hand.succeed(job)
        assert await bench.states([parent, child]) == [State.succeeded, State.cancelled]

    async def test_dependents_that_run_anyway_wait_for_the_end_of_a_running_parent(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,), if_parent_fails="run")
        hand = bench.hand()
        job = await hand.take()
        await bench.cancel(parent)
        assert await bench.state(child) is State.blocked
        await hand.drop(job)
        assert await hand.ids() == [child]

    async def test_a_dropped_job_is_cancelled_with_its_dependents(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = bench.hand()
        answer = await hand.drop(await hand.take(), "pointless")
        assert (answer.answer, answer.state) == ("done", State.cancelled)
        assert (await bench.view(parent)).reason == "pointless"
        assert await bench.state(child) is State.cancelled

    @pytest.mark.parametrize("running", [False, True])
    async def test_the_same_id_twice_in_one_call_is_cancelled_once(self, bench: Bench, running: bool) -> None:
        id = await bench.add()
        if running:
            await bench.hand().take()
        await bench.cancel(id, id, force=True)
        assert (await bench.store.count()).cancelled == 1
        await bench.check_books()
