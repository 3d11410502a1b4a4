"""Behaviours of time: delayed and scheduled jobs, expiry, and future jobs that delay no ready job."""

from __future__ import annotations

import pytest

from limpet.core.endings.transition import Release
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

DAY_MS = 86_400_000


@asynchronous
class TestSchedule:
    async def test_a_delayed_job_is_not_claimed_before_its_time(self, bench: Bench) -> None:
        job, hand = bench.job(delay_ms=10_000), bench.hand()
        assert (await bench.put(job))[0].state is State.scheduled
        assert (await bench.view(job.id)).due_at_ms == bench.clock.now_ms + 10_000
        bench.clock.advance(9_999)
        assert await hand.claim() == []
        bench.clock.advance(1)
        assert await hand.ids() == [job.id]

    async def test_an_absolute_instant_wins_over_the_delay(self, bench: Bench) -> None:
        at_ms = bench.clock.now_ms + 5_000
        id = await bench.add(due_at_ms=at_ms, delay_ms=60_000)
        assert (await bench.view(id)).due_at_ms == at_ms
        bench.clock.advance(5_000)
        assert await bench.hand().ids() == [id]

    async def test_an_instant_in_the_past_is_ready_now(self, bench: Bench) -> None:
        job = bench.job(due_at_ms=bench.clock.now_ms - DAY_MS)
        assert (await bench.put(job))[0].state is State.ready
        assert await bench.hand().ids() == [job.id]

    async def test_an_empty_claim_says_when_the_next_job_is_due(self, bench: Bench) -> None:
        await bench.add(delay_ms=30_000)
        await bench.add(delay_ms=7_000)
        hand = bench.hand()
        await hand.beat()
        answer = await hand.ask()
        assert answer.jobs == ()
        assert answer.now_ms == bench.clock.now_ms
        assert answer.next_at_ms == bench.clock.now_ms + 7_000

    async def test_an_empty_store_promises_no_instant(self, bench: Bench) -> None:
        hand = bench.hand()
        await hand.beat()
        answer = await hand.ask()
        assert (answer.jobs, answer.next_at_ms, answer.again) == ((), None, False)

    async def test_due_jobs_come_in_the_order_of_their_instants(self, bench: Bench) -> None:
        third, first, second = [await bench.add(delay_ms=ms) for ms in (300, 100, 200)]
        bench.clock.advance(1_000)
        assert await bench.hand().ids(3) == [first, second, third]

    async def test_a_job_that_became_due_before_one_was_enqueued_goes_first(self, bench: Bench) -> None:
        delayed = await bench.add(delay_ms=100)
        bench.clock.advance(200)
        later = await bench.add()
        assert await bench.hand().ids(2) == [delayed, later]

    async def test_an_urgent_due_job_comes_before_a_crowd_of_due_ones(self, bench: Bench) -> None:
        await bench.add_many(600, delay_ms=1_000, priority=8)
        urgent = await bench.add(delay_ms=2_000, priority=0)
        bench.clock.advance(3_000)
        assert await bench.hand().ids() == [urgent]

    async def test_a_crowd_of_future_jobs_holds_no_ready_job_back(self, bench: Bench) -> None:
        await bench.add_many(1_000, delay_ms=DAY_MS, priority=0)
        ready = await bench.add(priority=9)
        assert await bench.hand().ids(5) == [ready]

    async def test_many_due_jobs_are_all_promoted(self, bench: Bench) -> None:
        ids = await bench.add_many(1_500, delay_ms=500)
        bench.clock.advance(1_000)
        assert await bench.hand().drain(100) == ids

    async def test_a_due_job_counts_as_ready_once_it_is_met(self, bench: Bench) -> None:
        ids = await bench.add_many(2, delay_ms=500)
        bench.clock.advance(500)
        await bench.hand().take()
        assert await bench.states(ids) == [State.running, State.ready]


@asynchronous
class TestExpiry:
    async def test_a_job_not_started_in_time_is_cancelled_as_expired(self, bench: Bench) -> None:
        id = await bench.add(expires_ms=5_000)
        assert (await bench.view(id)).expires_at_ms == bench.clock.now_ms + 5_000
        bench.clock.advance(5_001)
        assert await bench.hand().claim() == []
        view = await bench.view(id)
        assert view.state is State.cancelled
        assert "expired" in view.reason
        assert view.finished_at_ms == bench.clock.now_ms

    async def test_a_job_started_in_time_runs(self, bench: Bench) -> None:
        id = await bench.add(expires_ms=5_000)
        bench.clock.advance(4_999)
        hand = bench.hand()
        claimed = await hand.take()
        bench.clock.advance(10_000)
        assert (await hand.succeed(claimed))[0].answer == "done"
        assert await bench.state(id) is State.succeeded

    async def test_a_job_that_was_started_in_time_and_handed_back_does_not_expire(self, bench: Bench) -> None:
        started, unstarted = await bench.add(expires_ms=1_000), await bench.add(expires_ms=1_000)
        hand = bench.hand()
        first, second = await hand.claim(2)
        await hand.settle(Release(first.id, first.token, started=True), Release(second.id, second.token))
        bench.clock.advance(2_000)
        assert await hand.ids(5) == [started]
        assert await bench.state(unstarted) is State.cancelled

    async def test_an_expired_job_holds_nobody_back(self, bench: Bench) -> None:
        await bench.add_many(300, expires_ms=1_000)
        fresh = await bench.add()
        bench.clock.advance(2_000)
        assert await bench.hand().ids(5) == [fresh]

    async def test_the_sweep_expires_jobs_that_nobody_asks_for(self, bench: Bench) -> None:
        ready = await bench.add(expires_ms=2_000, task="unknown")
        later = await bench.add(expires_ms=2_000, delay_ms=DAY_MS)
        parent = await bench.add()
        blocked = await bench.add(expires_ms=2_000, after=(parent,))
        await bench.sweep(4_000)
        assert await bench.states([ready, later, blocked, parent]) == [*[State.cancelled] * 3, State.ready]

    async def test_an_expired_parent_takes_its_dependents_along(self, bench: Bench) -> None:
        parent = await bench.add(expires_ms=2_000)
        child = await bench.add(after=(parent,))
        await bench.sweep(4_000)
        assert await bench.states([parent, child]) == [State.cancelled] * 2

    @pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
    async def test_a_dependent_freed_by_an_expiry_is_handed_out_or_waits(
        self, bench: Bench, first: str, second: str
    ) -> None:
        parent = await bench.add(task=first, expires_ms=1_000)
        child = await bench.add(task=second, after=(parent,), if_parent_fails="run")
        bench.clock.advance(10)
        others = await bench.add_many(3, task=second)
        bench.clock.advance(2_000)
        hand = bench.hand()
        given = await hand.claim(10)
        held = {one.id for one in await bench.store.held("w1")}
        assert held == {job.id for job in given}
        assert held == {job.id for job in await bench.everything() if job.state is State.running}
        await hand.succeed(*given)
        await hand.drain()
        assert await bench.states([parent, child, *others]) == [State.cancelled, *[State.succeeded] * 4]

    async def test_a_job_that_was_started_in_time_may_be_retried_later(self, bench: Bench) -> None:
        id = await bench.add(expires_ms=1_000)
        hand = bench.hand()
        await hand.fail(await hand.take(), delay_ms=3_000)
        await bench.sweep(4_000)
        assert await hand.ids() == [id]
