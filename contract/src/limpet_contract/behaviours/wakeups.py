"""Behaviours of waking: a sleeping worker is told at once of work it can do, and of nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from limpet.core.errors import ResultTimeout
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.lease import Wake
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand

LONG_MS = 60_000  # far longer than any wake-up takes; a test that needs it all has failed
SHORT_MS = 150  # long enough for a wake-up that should not come


async def asleep(hand: Hand) -> None:
    """Find nothing to do, which marks the session idle."""
    assert await hand.claim() == []


async def woken_by(hand: Hand, act: Callable[[], Awaitable[object]], *, timeout_ms: int = LONG_MS) -> Wake:
    """Wait in one task while another acts."""
    waiting = asyncio.ensure_future(hand.wait(timeout_ms))
    await asyncio.sleep(0)
    try:
        await act()
        return await asyncio.wait_for(waiting, timeout_ms / 1000 + 60)  # a busy machine is late
    finally:
        waiting.cancel()


async def wakes(hand: Hand, act: Callable[[], Awaitable[object]]) -> bool:
    """True when the act wakes the worker for work well before its wait is over."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    wake = await woken_by(hand, act)
    return wake.work and loop.time() - started < LONG_MS / 2000


@asynchronous
class TestWakeUps:
    async def test_a_wait_that_nothing_ends_runs_out(self, bench: Bench) -> None:
        hand = bench.hand()
        await asleep(hand)
        assert await hand.wait(30) == Wake()

    async def test_a_matching_job_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        hand = bench.hand(queues=("default",), tasks=("work",))
        await asleep(hand)
        assert await wakes(hand, bench.add)
        assert len(await hand.claim()) == 1

    async def test_a_job_enqueued_by_another_handle_wakes_it_too(self, bench: Bench) -> None:
        hand, other = bench.hand(), await bench.other()
        await asleep(hand)
        assert await wakes(hand, other.add)

    async def test_a_job_enqueued_before_the_wait_began_is_not_missed(self, bench: Bench) -> None:
        hand, other = bench.hand(), await bench.other()
        await asleep(hand)
        await other.add()
        assert (await asyncio.wait_for(hand.wait(LONG_MS), LONG_MS / 2000)).work

    @pytest.mark.parametrize("why", ["queue", "task", "needs"])
    async def test_a_job_it_cannot_do_does_not_wake_a_worker(self, bench: Bench, why: str) -> None:
        hand = bench.hand(queues=("default",), tasks=("work",))
        await asleep(hand)
        job = {"queue": bench.job(queue="other"), "task": bench.job(task="other"), "needs": bench.job(needs=("gpu",))}
        assert not (await woken_by(hand, lambda: bench.put(job[why]), timeout_ms=SHORT_MS)).work

    async def test_work_that_comes_back_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        busy, idle = bench.hand("busy"), bench.hand("idle")
        await bench.add()
        job = await busy.take()
        await asleep(idle)
        assert await wakes(idle, lambda: busy.release(job))

    async def test_a_released_dependent_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        busy, idle = bench.hand("busy", tasks=("parent",)), bench.hand("idle", tasks=("work",))
        parent = await bench.add(task="parent")
        await bench.add(after=(parent,))
        job = await busy.take()
        await asleep(idle)
        assert await wakes(idle, lambda: busy.succeed(job))

    async def test_a_freed_slot_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        await bench.add_many(2, limits=("x",))
        busy, idle = bench.hand("busy"), bench.hand("idle")
        job = await busy.take()
        await asleep(idle)
        assert await wakes(idle, lambda: busy.succeed(job))
        assert len(await idle.claim()) == 1

    async def test_a_raised_ceiling_wakes_as_many_sleepers_as_may_run(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        await bench.put(*(bench.job(keys=("x",), tenant=f"g{n}") for n in range(3)))
        await bench.hand("busy").take()
        sleepers = [bench.hand("one"), bench.hand("two")]
        for hand in sleepers:
            await asleep(hand)
        waiting = [asyncio.ensure_future(hand.wait(LONG_MS)) for hand in sleepers]
        await asyncio.sleep(0)
        await bench.change(GateChange("limit:x", rule=GateRule("limit:x", concurrency=3)))
        wakes = await asyncio.wait_for(asyncio.gather(*waiting), LONG_MS / 2000)
        assert [wake.work for wake in wakes] == [True, True]

    async def test_resume_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        await bench.add()
        await bench.change(GateChange("queue:default", pause=Pause("ada", "why", bench.clock.now_ms)))
        hand = bench.hand()
        await asleep(hand)
        assert await wakes(hand, lambda: bench.change(GateChange("queue:default", resume=True)))
        assert len(await hand.claim()) == 1

    async def test_a_person_who_retries_a_dead_job_wakes_a_sleeping_worker(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        await hand.bury(await hand.take())
        await asleep(hand)
        assert await wakes(hand, lambda: bench.retry(id))

    async def test_a_sooner_instant_wakes_a_worker_that_waits_for_a_later_one(self, bench: Bench) -> None:
        await bench.add(delay_ms=3_600_000)
        hand = bench.hand()
        await asleep(hand)
        assert await wakes(hand, lambda: bench.add(delay_ms=1_000))

    async def test_who_sleeps_hears_of_an_instant_though_one_who_has_left_knew_an_earlier_one(
        self, bench: Bench
    ) -> None:
        hands = [bench.hand("one"), bench.hand("two")]
        for hand in hands:
            await asleep(hand)
        waiting = {asyncio.ensure_future(hand.wait(LONG_MS)): hand for hand in hands}
        await bench.add(delay_ms=1_000)
        told, (untold,) = await asyncio.wait(waiting, return_when="FIRST_COMPLETED", timeout=LONG_MS / 2000)
        await waiting[told.pop()].leave()
        await bench.add(delay_ms=2_000)
        assert (await asyncio.wait_for(untold, LONG_MS / 2000)).work

    async def test_a_cancel_request_wakes_the_session_that_runs_the_job(self, bench: Bench) -> None:
        id, hand, other = await bench.add(), bench.hand(), await bench.other()
        await hand.take()
        wake = await woken_by(hand, lambda: other.cancel(id))
        assert wake.cancel
        assert [cancelled for cancelled, _ in (await hand.beat()).cancels] == [id]

    async def test_an_urgent_job_wakes_a_busy_worker_when_nobody_is_idle(self, bench: Bench) -> None:
        await bench.add_many(3, priority=8)
        hand = bench.hand()
        await hand.claim(2)
        assert (await woken_by(hand, lambda: bench.add(priority=0))).urgent

    @pytest.mark.parametrize("found", [True, False])
    async def test_a_look_for_urgent_jobs_alone_leaves_a_sleeper_asleep(self, bench: Bench, found: bool) -> None:
        # The pool of "rush" is busy, so the sleeper asked for "work" alone; who may go past the pools looks for more.
        sleeper, look = bench.hand("w1", tasks=("work",)), bench.hand("w1", tasks=("work", "rush"))
        await asleep(sleeper)
        if found:
            await bench.add(task="rush", priority=0)
        answer = await look.ask(1, claimer="bypass", least_urgent=3)
        assert len(answer.jobs) == found
        assert [session.idle for session in await bench.store.sessions()] == [True]
        assert await wakes(sleeper, bench.add)

    async def test_every_job_of_many_sleepers_is_claimed_without_a_poll(self, bench: Bench) -> None:
        hands = [bench.hand(f"w{n}") for n in range(4)]
        done: set[bytes] = set()
        everything = asyncio.Event()

        async def work(hand: Hand) -> None:
            while not everything.is_set():
                jobs = await hand.claim(2)
                if jobs:
                    await hand.succeed(*jobs)
                    done.update(job.id for job in jobs)
                    if len(done) == 40:
                        everything.set()
                else:
                    await hand.wait(LONG_MS)

        workers = [asyncio.ensure_future(work(hand)) for hand in hands]
        try:
            for _ in range(20):
                await bench.add_many(2)
                await asyncio.sleep(0)
            await asyncio.wait_for(everything.wait(), LONG_MS / 2000)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        assert len(done) == 40


@asynchronous
class TestWatch:
    @pytest.mark.parametrize("end", ["succeed", "bury", "drop"])
    async def test_a_watcher_is_told_when_the_job_is_finished(self, bench: Bench, end: str) -> None:
        id, hand, other = await bench.add(), bench.hand(), await bench.other()
        job = await hand.take()
        watching = asyncio.ensure_future(other.store.watch(id, LONG_MS))
        await asyncio.sleep(0)
        await hand.end(end, job)
        view = await asyncio.wait_for(watching, LONG_MS / 2000)
        assert view == await bench.view(id)

    async def test_very_many_watchers_are_all_told_when_their_jobs_finish_at_once(self, bench: Bench) -> None:
        ids, other = await bench.add_many(400), await bench.other()
        watching = [asyncio.ensure_future(bench.store.watch(id, None)) for id in ids]
        await asyncio.sleep(0)
        hand = other.hand()
        jobs = await hand.claim(400)
        assert len(jobs) == 400
        await hand.succeed(*jobs)
        views = await asyncio.wait_for(asyncio.gather(*watching), LONG_MS / 2000)
        assert {view.state for view in views if view} == {State.succeeded}

    async def test_a_watcher_of_a_cancelled_job_is_told(self, bench: Bench) -> None:
        id = await bench.add()
        watching = asyncio.ensure_future(bench.store.watch(id, None))
        await asyncio.sleep(0)
        await bench.cancel(id)
        view = await asyncio.wait_for(watching, LONG_MS / 2000)
        assert view is not None
        assert view.state is State.cancelled

    async def test_a_job_finished_before_is_answered_at_once(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        await hand.succeed(await hand.take(), result=b"7")
        view = await bench.store.watch(id, LONG_MS)
        assert view is not None
        assert view.result == b"7"

    async def test_a_retry_is_no_finish(self, bench: Bench) -> None:
        id, hand = await bench.add(), bench.hand()
        job = await hand.take()
        watching = asyncio.ensure_future(bench.store.watch(id, SHORT_MS))
        await asyncio.sleep(0)
        await hand.fail(job)
        with pytest.raises(ResultTimeout):
            await watching

    async def test_a_watch_runs_out_when_the_job_goes_on(self, bench: Bench) -> None:
        with pytest.raises(ResultTimeout):
            await bench.store.watch(await bench.add(), 20)

    async def test_a_job_that_is_not_there_is_none(self, bench: Bench) -> None:
        assert await bench.store.watch(bench.id(), LONG_MS) is None
