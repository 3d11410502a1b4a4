"""Behaviours of settlement: each transition does what it says, once, and answers come in order."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import Succeed
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestSettle:
    async def test_success_keeps_the_result_and_the_instant(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        bench.clock.advance(70)
        answer = (await hand.succeed(job, result=b'{"sent":true}'))[0]
        assert (answer.answer, answer.state) == ("done", State.succeeded)
        view = await bench.view(id)
        assert (view.state, view.result, view.finished_at_ms) == (
            State.succeeded,
            b'{"sent":true}',
            bench.clock.now_ms,
        )
        assert (view.token, view.session) == (None, None)

    async def test_a_result_of_null_is_none(self, bench: Bench) -> None:
        hand = bench.hand()
        for tries in (1, 2):
            id = await bench.add()
            job = await hand.take()
            for _ in range(tries - 1):
                await hand.fail(job)
                job = await hand.take()
            await hand.succeed(job, result=b"null")
            assert (await bench.view(id)).result is None

    async def test_answers_come_in_the_order_of_the_transitions(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.add_many(3)
        one, two, three = await hand.claim(3)
        missing = bench.id()
        answers = await hand.settle(
            Succeed(three.id, three.token),
            Succeed(missing, 5),
            Succeed(two.id, two.token - 1),
            Succeed(one.id, one.token),
        )
        assert [answer.answer for answer in answers] == ["done", "gone", "stale", "done"]
        assert answers[1].state is None
        assert answers[2].state is State.running
        assert await bench.state(two.id) is State.running

    async def test_the_same_settlement_again_gets_the_same_answers_and_changes_nothing(self, bench: Bench) -> None:
        await bench.add_many(2)
        hand = bench.hand()
        one, two = await hand.claim(2)
        transitions = Succeed(one.id, one.token, b"1"), Succeed(two.id, two.token - 1)
        first = await hand.settle(*transitions, seq=1)
        counts = await bench.store.count()
        assert await hand.settle(*transitions, seq=1) == first
        assert await bench.store.count() == counts

    async def test_another_handle_repeats_the_answers_too(self, bench: Bench) -> None:
        await bench.add()
        hand, other = bench.hand(), (await bench.other()).hand()
        job = await hand.take()
        first = await hand.settle(Succeed(job.id, job.token), seq=1)
        assert await other.settle(Succeed(job.id, job.token), seq=1) == first

    async def test_one_job_settled_twice_in_one_call_ends_once(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        job = await hand.take()
        answers = await hand.settle(Succeed(job.id, job.token, b"1"), Succeed(job.id, job.token, b"2"))
        assert [answer.answer for answer in answers] == ["done", "stale"]
        assert (await bench.view(job.id)).result == b"1"

    async def test_a_batch_may_be_settled_in_parts_and_in_any_order(self, bench: Bench) -> None:
        ids = await bench.add_many(10)
        hand = bench.hand()
        jobs = await hand.claim(10)
        assert [a.answer for a in await hand.succeed(*jobs[5:])] == ["done"] * 5
        assert [a.answer for a in await hand.succeed(*reversed(jobs[:5]))] == ["done"] * 5
        assert await bench.states(ids) == [State.succeeded] * 10

    @pytest.mark.parametrize("delay_ms", [0, 5_000])
    async def test_a_retry_spends_the_attempt(self, bench: Bench, delay_ms: int) -> None:
        id = await bench.add()
        hand = bench.hand()
        answer = await hand.fail(await hand.take(), delay_ms=delay_ms)
        expected = State.scheduled if delay_ms else State.ready
        assert (answer.answer, answer.state) == ("done", expected)
        view = await bench.view(id)
        assert (view.state, view.attempt, view.due_at_ms) == (expected, 1, bench.clock.now_ms + delay_ms)
        assert (view.reason, view.error_type, view.cause) == ("it broke", "builtins.RuntimeError", "broke")
        bench.clock.advance(delay_ms)
        assert (await hand.take()).attempt == 2

    async def test_a_release_gives_the_attempt_back(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        for started in (False, True):
            await hand.release(await hand.take(), started=started)
            view = await bench.view(id)
            assert (view.state, view.attempt, view.lost, view.token) == (State.ready, 0, 0, None)
        assert (await hand.take()).attempt == 1

    async def test_a_snooze_gives_the_attempt_back_and_counts_itself(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        answer = await hand.snooze(await hand.take(), 5_000)
        assert (answer.answer, answer.state) == ("done", State.scheduled)
        view = await bench.view(id)
        assert (view.attempt, view.held, view.due_at_ms) == (0, 1, bench.clock.now_ms + 5_000)
        snoozed_at_ms = bench.clock.now_ms
        bench.clock.advance(5_000)
        job = await hand.take()
        assert (job.attempt, job.held, job.held_since_ms) == (1, 1, snoozed_at_ms)
