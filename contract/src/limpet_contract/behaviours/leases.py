"""Behaviours of leases: tokens grow, beats keep jobs, silence gives them back, and notes outlive an attempt."""

from __future__ import annotations

import asyncio

import pytest

from limpet.core.endings.transition import Lose
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

SAFE = 1 << 53  # the largest integer that JSON readers everywhere keep exact


@asynchronous
class TestTokens:
    async def test_the_token_grows_with_every_claim_of_a_job(self, bench: Bench) -> None:
        await bench.add()
        hands, tokens = [bench.hand("w1"), bench.hand("w2")], []
        for number in range(6):
            job = await hands[number % 2].take()
            tokens.append(job.token)
            await hands[number % 2].release(job)
        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0
        assert tokens[-1] < SAFE

    async def test_the_token_grows_across_handles(self, bench: Bench) -> None:
        other = await bench.other()
        await bench.add()
        first = await bench.hand("w1").take()
        await bench.hand("w1").release(first)
        assert (await other.hand("w2").take()).token > first.token

    async def test_the_token_never_falls_when_the_clock_does(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        first = await hand.take()
        await hand.release(first)
        bench.clock.advance(-2_000)
        assert (await hand.take()).token > first.token

    async def test_whoever_knows_the_token_may_settle(self, bench: Bench) -> None:
        id = await bench.add()
        job = await bench.hand("child").take()
        supervisor = bench.hand("supervisor")
        await supervisor.beat()
        assert (await supervisor.succeed(job))[0].answer == "done"
        assert await bench.state(id) is State.succeeded


@asynchronous
class TestBeats:
    async def test_the_first_beat_of_a_session_is_fresh_and_the_next_is_not(self, bench: Bench) -> None:
        hand = bench.hand()
        assert (await hand.beat()).fresh
        assert not (await hand.beat()).fresh

    async def test_beats_keep_a_lease_for_ever(self, bench: Bench) -> None:
        id = await bench.add(policy=Policy(timeout_ms=None, hard_timeout_ms=None))
        hand = bench.hand(ttl_ms=15_000)
        job = await hand.take()
        for _ in range(200):
            bench.clock.advance(5_000)
            await hand.beat()
            assert await bench.store.expire(now_ms=bench.clock.now_ms) == 0
        assert (await hand.succeed(job))[0].answer == "done"
        assert await bench.state(id) is State.succeeded

    async def test_a_silent_session_gives_its_jobs_back_within_lease_and_sweep(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        watcher, silent = bench.hand("watcher"), bench.hand("silent", ttl_ms=15_000)
        await bench.sweep(60_000, watcher)
        await silent.claim(3)
        assert await bench.sweep(14_000, watcher) == 0
        assert await bench.sweep(3_000, watcher) == 3
        assert await bench.states(ids) == [State.ready] * 3
        assert [job.attempt for job in await watcher.claim(3)] == [1, 1, 1]

    async def test_a_session_whose_jobs_were_taken_is_told_that_it_is_fresh(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.take()
        await bench.lose(id)
        assert (await hand.beat()).fresh

    async def test_expire_takes_no_more_than_its_limit(self, bench: Bench) -> None:
        await bench.add_many(10)
        await bench.sweep(60_000)
        await bench.hand().claim(10)
        taken = []
        for _ in range(40):
            bench.clock.advance(1_000)
            taken.append(await bench.store.expire(4, now_ms=bench.clock.now_ms))
        assert sum(taken) == 10
        assert max(taken) <= 4

    async def test_after_a_gap_nothing_expires_for_one_lease_time(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.sweep(60_000)
        hand = bench.hand(ttl_ms=15_000)
        job = await hand.take()
        bench.clock.advance(120_000)
        assert await bench.store.expire(now_ms=bench.clock.now_ms) == 0
        assert await bench.sweep(10_000) == 0
        assert not (await hand.beat()).fresh
        assert await bench.sweep(14_000) == 0
        assert (await hand.succeed(job))[0].answer == "done"
        assert await bench.state(id) is State.succeeded

    async def test_the_very_first_sweep_takes_nobody_by_surprise(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand(ttl_ms=5_000)
        job = await hand.take()
        bench.clock.advance(7_000)  # the store was away, and no worker swept
        assert await bench.store.expire(now_ms=bench.clock.now_ms) == 0
        assert not (await hand.beat()).fresh
        assert (await hand.succeed(job))[0].answer == "done"

    async def test_after_a_gap_those_who_stay_silent_are_taken_in_the_end(self, bench: Bench) -> None:
        await bench.add()
        await bench.sweep(60_000)
        await bench.hand(ttl_ms=15_000).take()
        bench.clock.advance(120_000)
        assert await bench.sweep(20_000) == 1

    async def test_a_gap_takes_no_job_of_a_live_session_by_its_hard_deadline(self, bench: Bench) -> None:
        # A suspended machine: no time passed for its handlers, so no deadline has passed.
        ids = await bench.add_many(3, policy=Policy(timeout_ms=100_000, hard_timeout_ms=110_000))
        hand = bench.hand()
        await bench.sweep(10_000, hand)
        jobs = await hand.claim(3)
        await bench.sweep(50_000, hand)
        bench.clock.advance(7_200_000)
        await hand.beat()
        assert await bench.sweep(50_000, hand) == 0
        assert [answer.answer for answer in await hand.succeed(*jobs)] == ["done"] * 3
        assert set(await bench.states(ids)) == {State.succeeded}

    async def test_a_hard_deadline_comes_all_the_same_after_a_gap(self, bench: Bench) -> None:
        await bench.add(policy=Policy(timeout_ms=10_000, hard_timeout_ms=20_000))
        hand = bench.hand()
        await bench.sweep(10_000, hand)
        await hand.take()
        bench.clock.advance(7_200_000)
        await hand.beat()
        assert await bench.sweep(80_000, hand) == 1

    async def test_a_hard_deadline_is_moved_by_no_beat(self, bench: Bench) -> None:
        # A store may wait a little longer than the worker, who ends the job itself if it can.
        id = await bench.add(policy=Policy(timeout_ms=10_000, hard_timeout_ms=20_000))
        hand = bench.hand()
        await bench.sweep(60_000, hand)
        job = await hand.take()
        assert await bench.sweep(19_000, hand) == 0
        assert await bench.state(id) is State.running
        assert await bench.sweep(60_000, hand) == 1
        assert (await hand.succeed(job))[0].answer == "stale"
        assert await bench.state(id) is State.ready

    async def test_a_hard_deadline_takes_only_the_job_that_passed_it(self, bench: Bench) -> None:
        await bench.add(policy=Policy(timeout_ms=10_000, hard_timeout_ms=20_000))
        longer = await bench.add(policy=Policy(timeout_ms=None, hard_timeout_ms=None))
        hand = bench.hand()
        await bench.sweep(60_000, hand)
        assert len(await hand.claim(2)) == 2
        assert await bench.sweep(80_000, hand) == 1
        assert await bench.state(longer) is State.running


@asynchronous
class TestLeaving:
    async def test_leaving_releases_what_is_still_held_unspent(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand = bench.hand()
        jobs = await hand.claim(3)
        await hand.succeed(jobs[0])
        await hand.leave()
        assert await bench.states(ids) == [State.succeeded, State.ready, State.ready]
        assert [(job.attempt, job.lost) for job in await bench.hand("w2").claim(3)] == [(1, 0), (1, 0)]
        assert [answer.answer for answer in await hand.succeed(*jobs[1:])] == ["stale", "stale"]

    async def test_leaving_twice_or_unknown_is_no_error(self, bench: Bench) -> None:
        hand = bench.hand()
        await hand.leave()
        await hand.beat()
        await hand.leave()
        await hand.leave()

    @pytest.mark.parametrize("leaves_first", [False, True])
    async def test_a_session_that_leaves_during_its_claim_strands_nothing(
        self, bench: Bench, leaves_first: bool
    ) -> None:
        ids = await bench.add_many(12)
        other = await bench.other()
        for number in range(6):
            hand, same = bench.hand(f"w{number}"), other.hand(f"w{number}")
            await hand.beat()
            both = [hand.ask(2, seq=1), same.leave()]
            await asyncio.gather(*(reversed(both) if leaves_first else both))
        assert await bench.states(ids) == [State.ready] * 12
        assert await bench.store.sessions() == []
        await bench.check_books()

    async def test_held_names_what_a_session_holds(self, bench: Bench) -> None:
        await bench.add_many(4)
        hand = bench.hand()
        jobs = await hand.claim(3)
        await bench.hand("w2").take()
        await hand.succeed(jobs[1])
        held = await bench.store.held("w1")
        assert {(one.id, one.token, one.lost) for one in held} == {(job.id, job.token, 0) for job in (jobs[0], jobs[2])}
        assert await bench.store.held("absent") == []

    async def test_a_supervisor_can_hand_back_what_its_dead_child_held(self, bench: Bench) -> None:
        ids = await bench.add_many(2)
        await bench.hand("child").claim(2)
        supervisor = bench.hand("supervisor")
        await supervisor.beat()
        await supervisor.settle(*(Lose(one.id, one.token) for one in await bench.store.held("child")))
        assert await bench.store.held("child") == []
        assert [(job.id, job.lost) for job in await supervisor.claim(5)] == [(id, 1) for id in ids]


@asynchronous
class TestNotes:
    STEP = Note("step", "charge", b'{"paid":true}')

    async def test_a_note_is_seen_by_people_and_by_the_next_attempt(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await hand.save(job, self.STEP)
        assert (await bench.view(id)).notes == (self.STEP,)
        await hand.fail(job)
        assert (await hand.take()).notes == (self.STEP,)

    async def test_a_note_of_the_same_name_takes_the_place_of_the_old_one(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await hand.save(job, Note("checkpoint", "", b"1"))
        await hand.save(job, Note("step", "a", b"1"))
        await hand.save(job, Note("checkpoint", "", b"2"))
        assert set((await bench.view(id)).notes) == {Note("checkpoint", "", b"2"), Note("step", "a", b"1")}

    async def test_notes_ride_on_beats(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        note = Note("progress", "", b'{"done":3,"of":10}')
        await hand.beat([(job.id, job.token, note)])
        assert (await bench.view(id)).notes == (note,)

    async def test_a_note_for_a_job_that_is_not_there_is_refused(self, bench: Bench) -> None:
        assert not await bench.store.save(bench.id(), 1, self.STEP, now_ms=bench.clock.now_ms)
