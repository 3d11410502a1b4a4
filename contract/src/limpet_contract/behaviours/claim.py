"""Behaviours of claim: who may get what, exactly once, and a lost answer that is given again."""

from __future__ import annotations

import asyncio

import pytest

from limpet.core.endings.transition import Lose
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestClaim:
    async def test_a_claimed_job_is_running_under_its_token(self, bench: Bench) -> None:
        id = await bench.add(args=b'{"n":1}')
        enqueued_at_ms = bench.clock.now_ms
        bench.clock.advance(50)
        job = await bench.hand("w7").take()
        assert (job.id, job.attempt, job.lost, job.args, job.held) == (id, 1, 0, b'{"n":1}', 0)
        assert (job.enqueued_at_ms, job.due_at_ms, job.claimed_at_ms) == (
            enqueued_at_ms,
            enqueued_at_ms,
            bench.clock.now_ms,
        )
        view = await bench.view(id)
        assert (view.state, view.attempt, view.token, view.session) == (State.running, 1, job.token, "w7")
        assert view.claimed_at_ms == bench.clock.now_ms

    async def test_a_job_is_given_to_one_claimer_only(self, bench: Bench) -> None:
        ids = await bench.add_many(40)
        hands = [bench.hand(f"w{n}") for n in range(4)]
        for hand in hands:
            await hand.beat()
        answers = await asyncio.gather(*(hand.claim(7) for hand in hands for _ in range(2)))
        given = [job.id for jobs in answers for job in jobs]
        assert len(given) == len(set(given)) == 40
        assert set(given) == set(ids)

    async def test_two_handles_never_share_a_job(self, bench: Bench) -> None:
        other = await bench.other()
        ids = await bench.add_many(60)
        one, two = bench.hand("one"), other.hand("two")
        answers = await asyncio.gather(*(hand.claim(5) for _ in range(6) for hand in (one, two)))
        given = [job.id for jobs in answers for job in jobs]
        assert sorted(given) == ids

    async def test_a_worker_gets_only_jobs_of_its_queues(self, bench: Bench) -> None:
        mine, _ = await bench.add(queue="a"), await bench.add(queue="b", priority=0)
        assert await bench.hand(queues=("a", "c")).ids(5) == [mine]

    async def test_a_worker_gets_only_tasks_it_knows(self, bench: Bench) -> None:
        await bench.add_many(300, task="new", priority=0)
        known = await bench.add(task="old", priority=9)
        assert await bench.hand(tasks=("old",)).ids(5) == [known]
        assert len(await bench.hand("w2", tasks=("new", "old")).claim(400)) == 300

    async def test_a_worker_gets_only_jobs_whose_needs_it_meets(self, bench: Bench) -> None:
        plain = await bench.add()
        gpu = await bench.add(needs=("gpu",))
        both = await bench.add(needs=("gpu", "eu"))
        assert await bench.hand("w1").ids(5) == [plain]
        assert await bench.hand("w2", capabilities=("gpu", "fast")).ids(5) == [gpu]
        assert await bench.hand("w3", capabilities=("eu",)).ids(5) == []
        assert await bench.hand("w4", capabilities=("eu", "gpu")).ids(5) == [both]

    async def test_none_means_any_queue_and_any_task(self, bench: Bench) -> None:
        ids = [await bench.add(queue=queue, task=task) for queue in "abc" for task in "xyz"]
        assert sorted(await bench.hand().ids(20)) == sorted(ids)

    async def test_a_queue_that_is_new_is_met_by_a_worker_that_takes_any(self, bench: Bench) -> None:
        hand = bench.hand()
        assert await hand.claim() == []
        id = await bench.add(queue="never seen", task="never seen")
        assert await hand.ids() == [id]

    async def test_a_blocked_job_holds_nobody_back(self, bench: Bench) -> None:
        parent = await bench.add(queue="elsewhere")
        await bench.add(after=(parent,), priority=0)
        ready = await bench.add(priority=9)
        assert await bench.hand(queues=("default",)).ids(5) == [ready]

    async def test_no_more_than_the_limit_is_given(self, bench: Bench) -> None:
        await bench.add_many(10)
        hand = bench.hand()
        await hand.beat()
        assert len((await hand.ask(3)).jobs) <= 3
        assert len(await hand.claim(4)) == 4

    async def test_a_claim_for_nothing_gets_nothing(self, bench: Bench) -> None:
        await bench.add_many(2)
        hand = bench.hand()
        await hand.beat()
        assert (await hand.ask(0)).jobs == ()
        assert len(await hand.claim(5)) == 2

    async def test_a_session_that_never_beat_gets_nothing(self, bench: Bench) -> None:
        id = await bench.add()
        answer = await bench.hand("absent").ask(5)
        assert (answer.jobs, answer.again) == ((), False)
        assert await bench.state(id) is State.ready

    async def test_a_session_that_never_beat_is_told_the_time(self, bench: Bench) -> None:
        absent = bench.hand("absent")
        assert (await absent.ask(0)).now_ms == bench.clock.now_ms
        assert await bench.store.sessions() == []

    async def test_the_engines_time_goes_on_and_is_not_behind_the_last_claim(self, bench: Bench) -> None:
        before_ms = await bench.store.now()
        assert before_ms <= await bench.store.now() < before_ms + 60_000
        ahead_ms = before_ms + 3_600_000
        await bench.add()
        hand = bench.hand()
        bench.clock.now_ms = ahead_ms
        await hand.beat()
        assert len(await hand.claim()) == 1
        assert await bench.store.now() >= ahead_ms

    async def test_a_session_past_its_deadline_gets_nothing_until_it_beats(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand(ttl_ms=15_000)
        await hand.beat()
        bench.clock.advance(15_001)
        answer = await hand.ask(5)
        assert (answer.jobs, answer.again) == ((), False)
        await hand.beat()
        assert [job.id for job in (await hand.ask(5)).jobs] == [id]

    async def test_a_session_that_left_gets_nothing(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        await hand.beat()
        await hand.leave()
        assert (await hand.ask(5)).jobs == ()


@asynchronous
class TestRepeatedClaim:
    async def test_the_same_question_again_gets_the_same_answer(self, bench: Bench) -> None:
        await bench.add_many(10, args=b'{"n":1}')
        hand = bench.hand()
        await hand.beat()
        first = await hand.ask(3, seq=1)
        bench.clock.advance(20)
        again = await hand.ask(3, seq=1)
        assert [(job.id, job.token, job.attempt, job.args) for job in again.jobs] == [
            (job.id, job.token, job.attempt, job.args) for job in first.jobs
        ]
        assert len(first.jobs) == 3
        assert (await bench.store.count()).total(State.running) == 3

    async def test_another_handle_repeats_the_answer_too(self, bench: Bench) -> None:
        await bench.add_many(3)
        hand, other = bench.hand(), (await bench.other()).hand()
        await hand.beat()
        first = await hand.ask(2, seq=1)
        assert [job.token for job in (await other.ask(2, seq=1)).jobs] == [job.token for job in first.jobs]

    async def test_the_next_question_gets_other_jobs(self, bench: Bench) -> None:
        ids = await bench.add_many(4)
        hand = bench.hand()
        await hand.beat()
        assert [job.id for seq in (1, 2) for job in (await hand.ask(2, seq=seq)).jobs] == ids

    async def test_each_claimer_of_a_session_has_its_own_sequence(self, bench: Bench) -> None:
        ids = await bench.add_many(2)
        hand = bench.hand()
        await hand.beat()
        fetched = await hand.ask(1, seq=1, claimer="fetcher")
        bypassed = await hand.ask(1, seq=1, claimer="bypass")
        assert [*fetched.jobs, *bypassed.jobs] == [*(await hand.ask(1, seq=1)).jobs, *bypassed.jobs]
        assert [job.id for job in (*fetched.jobs, *bypassed.jobs)] == ids

    async def test_sequences_of_two_sessions_do_not_meet(self, bench: Bench) -> None:
        await bench.add_many(2)
        one, two = bench.hand("one"), bench.hand("two")
        await one.beat()
        await two.beat()
        assert (await one.ask(1, seq=1)).jobs[0].id != (await two.ask(1, seq=1)).jobs[0].id

    async def test_jobs_of_a_repeated_answer_can_be_settled_once(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        await hand.beat()
        first = (await hand.ask(1, seq=1)).jobs[0]
        again = (await hand.ask(1, seq=1)).jobs[0]
        assert (await hand.succeed(again))[0].answer == "done"
        assert (await hand.succeed(first))[0].answer == "stale"

    async def test_a_question_that_got_nothing_is_a_new_one_when_it_is_asked_again(self, bench: Bench) -> None:
        hand = bench.hand()
        await hand.beat()
        assert (await hand.ask(2, seq=1)).jobs == ()
        ids = await bench.add_many(3)
        for _ in range(2):
            assert [job.id for job in (await hand.ask(2, seq=1)).jobs] == ids[:2]

    async def test_two_who_ask_the_same_at_once_get_the_same(self, bench: Bench) -> None:
        await bench.add_many(6)
        hand, other = bench.hand(), (await bench.other()).hand()
        await hand.beat()
        one, two = await asyncio.gather(hand.ask(2, seq=1), other.ask(2, seq=1))
        assert {(job.id, job.token) for job in one.jobs} == {(job.id, job.token) for job in two.jobs}
        assert (await bench.store.count()).total(State.running) == 2

    async def test_what_was_settled_since_is_not_in_a_repeated_answer(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand = bench.hand()
        await hand.beat()
        first, *_ = (await hand.ask(3, seq=1)).jobs
        await hand.succeed(first)
        assert [job.id for job in (await hand.ask(3, seq=1)).jobs] == ids[1:]


@asynchronous
class TestSlots:
    """Jobs that must start at once (limited ones, suspects) are given only for a free slot."""

    async def test_limited_jobs_count_against_the_slots(self, bench: Bench) -> None:
        limited = await bench.add_many(5, limits=("smtp",))
        plain = await bench.add_many(5, task="plain")
        hand = bench.hand()
        given = set(await hand.ids(10, slots=2))
        assert given == {*limited[:2], *plain}

    @pytest.mark.parametrize("kind", ["limits", "keys", "breaker"])
    async def test_without_a_slot_no_limited_job_is_given(self, bench: Bench, kind: str) -> None:
        job = {
            "limits": bench.job(limits=("smtp",)),
            "keys": bench.job(keys=("customer:1",)),
            "breaker": bench.job(breaker="smtp"),
        }[kind]
        await bench.put(job)
        hand = bench.hand()
        assert await hand.claim(10, slots=0) == []
        assert await hand.ids(10, slots=1) == [job.id]

    async def test_urgent_limited_jobs_without_a_slot_hold_no_other_back(self, bench: Bench) -> None:
        await bench.add_many(5, priority=0, limits=("smtp",))
        plain = await bench.add_many(2, priority=9, task="plain")
        assert await bench.hand().ids(5, slots=0) == plain

    async def test_a_suspect_is_given_only_for_a_slot(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.lose(await hand.take())
        assert await hand.claim(5, slots=0) == []
        job = (await hand.claim(5, slots=1))[0]
        assert (job.id, job.lost) == (id, 1)

    async def test_a_suspect_without_a_slot_holds_no_less_urgent_job_of_its_task_back(self, bench: Bench) -> None:
        await bench.add(priority=3)
        hand = bench.hand()
        await hand.lose(await hand.take())
        plain = await bench.add(priority=5)
        assert await hand.ids(5, slots=0) == [plain]

    async def test_a_keyed_job_without_a_slot_holds_no_plain_job_of_its_task_back(self, bench: Bench) -> None:
        await bench.add(keys=("customer:1",))
        plain = await bench.add()
        hand = bench.hand()
        assert await hand.ids(5, slots=0) == [plain]

    async def test_suspects_and_limited_jobs_share_the_slots(self, bench: Bench) -> None:
        hand = bench.hand()
        await bench.add_many(2)
        await hand.settle(*[Lose(job.id, job.token) for job in await hand.claim(2)])
        await bench.add_many(2, task="limited", limits=("smtp",))
        jobs = await hand.claim(10, slots=3)
        assert len(jobs) == 3
