"""Behaviours of an engine that hands off: a lone job runs from the step that stores it on, if a worker sleeps for it.

They are apart from the others since not every engine does it: one that says so (`Features.hands_off`) imports them
beside the rest, `from limpet_contract.behaviours.handing import *`.
"""

from __future__ import annotations

from typing import Unpack

import pytest

from limpet.core.errors import QueueDraining, QueueFull
from limpet.core.gate import GateChange, GateRule, Pause
from limpet.core.jobs.job import Enqueued, Policy, Unique
from limpet.core.jobs.lease import Handed, Serves, Takes
from limpet.core.jobs.state import State
from limpet_contract.behaviours.fixture import bench
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.hand import NONE, Hand
from limpet_contract.making import JobOptions

__all__ = ["TestHandOff", "TestHandedJobs", "TestOrdinaryWay", "TestTakers", "bench"]

SHORT_MS = 50  # long enough for a message that should not come
TEN = Takes(10, 11)


async def asleep(
    bench: Bench, session: str = "w1", takes: Takes = TEN, tasks: tuple[str, ...] | None = None, limit: int = 10
) -> Hand:
    """A worker that has found nothing to do, in a store that knows the lane of a plain job."""
    if not await bench.store.sessions():
        await known(bench)
    hand = bench.hand(session, takes=takes, tasks=tasks)
    assert await hand.claim(limit) == []
    return hand


async def known(bench: Bench, **options: Unpack[JobOptions]) -> None:
    """Such a job has been there before: an engine may store the first one of a lane or policy in the ordinary way."""
    await bench.add(**options)
    before = bench.hand("before")
    await before.drain()
    await before.leave()


async def lone(bench: Bench, **options: Unpack[JobOptions]) -> Enqueued:
    """Enqueue one job, in a call of its own."""
    return (await bench.put(bench.job(**options)))[0]


async def is_handed(bench: Bench, **options: Unpack[JobOptions]) -> bool:
    return (await lone(bench, **options)).state is State.running


async def one_of(hand: Hand) -> Handed:
    """The one job that it was handed, and nothing else."""
    (handed,) = await hand.handed()
    return handed


@asynchronous
class TestHandOff:
    async def test_an_engine_with_these_behaviours_says_that_it_hands_off(self, bench: Bench) -> None:
        assert bench.store.features.hands_off

    async def test_a_lone_job_runs_at_once_and_comes_with_the_wake_up(self, bench: Bench) -> None:
        await known(bench, tenant="acme", policy=Policy(attempts=3))
        hand = await asleep(bench)
        job = bench.job(
            args=b'{"x": 1}', tags=("red",), meta=b'{"trace": "t"}', tenant="acme", policy=Policy(attempts=3)
        )
        answer = (await bench.put(job))[0]
        assert answer == Enqueued(job.id, False, State.running)
        handed = await one_of(hand)
        claimed = handed.job
        assert (claimed.id, claimed.lane, claimed.policy, claimed.args) == (job.id, job.lane, job.policy, job.args)
        assert (claimed.tags, claimed.meta, claimed.attempt, claimed.lost) == (job.tags, job.meta, 1, 0)
        assert claimed.enqueued_at_ms == claimed.due_at_ms == claimed.claimed_at_ms == bench.clock.now_ms

    async def test_it_is_held_under_a_token_like_a_job_that_was_claimed(self, bench: Bench) -> None:
        hand = await asleep(bench)
        id = (await lone(bench)).id
        job = (await one_of(hand)).job
        view = await bench.view(id)
        assert (view.state, view.token, view.session, view.attempt) == (State.running, job.token, "w1", 1)
        assert [(one.id, one.token) for one in await bench.store.held("w1")] == [(id, job.token)]
        assert (await hand.succeed(job, result=b"7"))[0].answer == "done"
        assert (await hand.succeed(job))[0].answer == "stale"
        assert (await bench.view(id)).result == b"7"

    async def test_its_token_is_newer_than_all_before_and_older_than_all_after(self, bench: Bench) -> None:
        hand = await asleep(bench)
        tokens = []
        for _ in range(3):
            await lone(bench)
            tokens.append((await one_of(hand)).job.token)
        await bench.add_many(2)
        tokens += [job.token for job in await hand.claim()]
        assert tokens == sorted(set(tokens))

    async def test_the_session_sleeps_on_and_is_handed_the_next_one(self, bench: Bench) -> None:
        hand = await asleep(bench)
        for number in range(3):
            assert await is_handed(bench), number
            await hand.succeed((await one_of(hand)).job)
        assert [session.idle for session in await bench.store.sessions()] == [True]

    async def test_numbers_of_a_session_have_no_gap(self, bench: Bench) -> None:
        hand = await asleep(bench)
        first = (await hand.beat()).handed
        numbers = []
        for _ in range(3):
            await lone(bench)
            numbers.append((await one_of(hand)).number)
        assert numbers == [first + 1, first + 2, first + 3]

    async def test_a_beat_says_the_number_of_the_last_one(self, bench: Bench) -> None:
        hand = await asleep(bench)
        await lone(bench)
        number = (await one_of(hand)).number
        assert (await hand.beat()).handed == number
        assert [one.handed for one in await bench.store.held("w1")] == [number]

    async def test_a_session_that_was_lost_goes_on_with_greater_numbers(self, bench: Bench) -> None:
        hand = await asleep(bench)
        await lone(bench)
        old = await one_of(hand)
        await bench.lose(old.job.id, bench.hand("other"))
        pulse = await hand.beat()
        assert pulse.fresh
        assert pulse.handed >= old.number
        (again,) = await hand.claim(10)
        await hand.succeed(again)
        assert await hand.claim(10) == []
        await lone(bench)
        numbers = {handed.number for handed in await hand.handed()} - {old.number}
        assert numbers == {pulse.handed + 1}

    async def test_a_caller_that_repeats_itself_gets_the_same_job(self, bench: Bench) -> None:
        hand, job = await asleep(bench), bench.job()
        await bench.put(job)
        again = (await bench.put(job))[0]
        assert again == Enqueued(job.id, True, State.running)
        handed = await one_of(hand)
        await hand.succeed(handed.job)
        assert (await bench.put(job))[0] == Enqueued(job.id, True, State.succeeded)
        assert await hand.handed(SHORT_MS) == []

    async def test_another_process_hands_to_a_worker_of_this_one(self, bench: Bench) -> None:
        hand, other = await asleep(bench), await bench.other()
        assert await is_handed(other)
        await hand.succeed((await one_of(hand)).job)

    async def test_a_job_that_was_handed_before_the_wait_began_is_not_missed(self, bench: Bench) -> None:
        hand, other = await asleep(bench), await bench.other()
        ids = [(await lone(other)).id for _ in range(3)]
        got: list[bytes] = []
        while len(got) < 3:
            got += [handed.job.id for handed in await hand.handed()]
        assert got == ids


@asynchronous
class TestHandedJobs:
    """What becomes of a job that was handed, when its worker does not do as it should."""

    async def test_the_sweep_takes_it_from_a_silent_session(self, bench: Bench) -> None:
        hand, other = await asleep(bench), bench.hand("other")
        await lone(bench)
        job = (await one_of(hand)).job
        await bench.lose(job.id, other)
        (again,) = await other.claim(10)
        assert (again.id, again.attempt, again.lost) == (job.id, 1, 1)
        assert (await hand.succeed(job))[0].answer == "stale"

    async def test_the_hard_timeout_ends_its_lease(self, bench: Bench) -> None:
        await known(bench, policy=Policy(timeout_ms=1_000, hard_timeout_ms=2_000))
        hand = await asleep(bench)
        id = (await lone(bench, policy=Policy(timeout_ms=1_000, hard_timeout_ms=2_000))).id
        await one_of(hand)
        await bench.sweep(40_000, hand)
        assert (await bench.view(id)).state is not State.running

    async def test_a_session_that_leaves_gives_it_back_unspent(self, bench: Bench) -> None:
        hand = await asleep(bench)
        id = (await lone(bench)).id
        await hand.leave()
        assert [(job.id, job.attempt, job.lost) for job in await bench.hand("other").claim()] == [(id, 1, 0)]

    async def test_it_is_handed_back_like_any_other(self, bench: Bench) -> None:
        hand = await asleep(bench)
        id = (await lone(bench)).id
        await hand.release((await one_of(hand)).job)
        assert await hand.ids() == [id]

    async def test_its_holder_hears_that_it_was_cancelled(self, bench: Bench) -> None:
        hand = await asleep(bench)
        id = (await lone(bench)).id
        job = (await one_of(hand)).job
        assert await bench.cancel(id) == ["cancelling"]
        assert (await hand.beat()).cancels == ((id, job.token),)
        await hand.drop(job)

    async def test_a_forced_cancel_takes_it_away(self, bench: Bench) -> None:
        hand = await asleep(bench)
        id = (await lone(bench)).id
        job = (await one_of(hand)).job
        assert await bench.cancel(id, force=True) == ["cancelled"]
        assert (await hand.succeed(job))[0].answer == "stale"

    async def test_a_dependent_waits_for_it(self, bench: Bench) -> None:
        hand = await asleep(bench)
        parent = (await lone(bench)).id
        job = (await one_of(hand)).job
        child = await bench.add(after=(parent,))
        await hand.succeed(job, result=b"7")
        (claimed,) = await hand.claim()
        assert (claimed.id, claimed.inputs[parent].result) == (child, b"7")

    async def test_it_keeps_notes_for_its_next_attempt(self, bench: Bench) -> None:
        hand = await asleep(bench)
        await lone(bench)
        job = (await one_of(hand)).job
        await hand.fail(job)
        assert [claimed.attempt for claimed in await hand.claim()] == [2]

    async def test_a_session_that_is_not_there_any_more_loses_nothing(self, bench: Bench) -> None:
        other = await bench.other()
        await asleep(other)
        await other.store.close()  # as a process that was killed: its session stays until its lease is over
        id = (await lone(bench)).id
        healer = bench.hand("healer")
        for _ in range(60):
            if claimed := await healer.claim():
                break
            await bench.sweep(SWEEP_MS, healer)
        assert [job.id for job in claimed] == [id]


@asynchronous
class TestTakers:
    """Who is handed a job, and how many."""

    async def test_a_session_that_takes_none_is_only_woken(self, bench: Bench) -> None:
        hand = await asleep(bench, takes=NONE)
        assert not await is_handed(bench)
        assert (await hand.wait(SHORT_MS)).work

    async def test_a_session_that_has_not_slept_is_handed_nothing(self, bench: Bench) -> None:
        hand = bench.hand(takes=TEN)
        await hand.beat()
        assert not await is_handed(bench)

    async def test_a_session_that_got_a_job_sleeps_no_more(self, bench: Bench) -> None:
        hand = await asleep(bench)
        await bench.add_many(2)
        await hand.claim()
        await hand.claim()
        assert not await is_handed(bench, task="other")

    async def test_a_session_that_asks_for_nothing_has_left_its_sleep(self, bench: Bench) -> None:
        hand = await asleep(bench)
        assert (await hand.ask(0)).jobs == ()
        assert [session.idle for session in await bench.store.sessions()] == [False]
        assert not await is_handed(bench)
        assert await hand.wait(SHORT_MS) == await hand.wait(SHORT_MS)

    async def test_a_silent_session_is_handed_nothing(self, bench: Bench) -> None:
        await asleep(bench)
        bench.clock.advance(15_000)
        assert not await is_handed(bench)

    @pytest.mark.parametrize("why", ["queue", "task", "needs"])
    async def test_a_job_it_cannot_run_becomes_ready(self, bench: Bench, why: str) -> None:
        await known(bench)
        hand = Hand(bench.store, bench.clock, "w1", Serves(("default",), ("work",)), takes=TEN)
        assert await hand.claim() == []
        wrong: dict[str, JobOptions] = {"queue": {"queue": "o"}, "task": {"task": "o"}, "needs": {"needs": ("gpu",)}}
        assert not await is_handed(bench, **wrong[why])
        assert await is_handed(bench)

    async def test_what_it_asked_for_last_counts_not_what_it_serves(self, bench: Bench) -> None:
        # Its threads are busy, so it asked for less.
        hand = bench.hand(takes=TEN)
        await hand.beat()
        narrow = Hand(bench.store, bench.clock, "w1", Serves(None, ("work",)), takes=TEN)
        assert (await narrow.ask(5)).jobs == ()
        assert not await is_handed(bench, task="threaded")

    async def test_it_gets_as_many_as_it_has_places_and_sleeps_no_more(self, bench: Bench) -> None:
        hand = await asleep(bench, takes=Takes(2, 2))
        assert [await is_handed(bench) for _ in range(3)] == [True, True, False]
        handed: list[Handed] = []
        while len(handed) < 2:
            handed += await hand.handed()
        assert [each.awake for each in handed] == [False, True]
        assert [session.idle for session in await bench.store.sessions()] == [False]

    async def test_a_place_that_fell_free_is_taken_again(self, bench: Bench) -> None:
        hand = await asleep(bench, takes=Takes(2, 2))
        await lone(bench)
        await hand.succeed((await one_of(hand)).job)
        assert [await is_handed(bench) for _ in range(2)] == [True, True]

    async def test_jobs_that_it_ran_when_it_lay_down_take_no_place(self, bench: Bench) -> None:
        await bench.add_many(3)
        hand = bench.hand(takes=Takes(1, 1))
        running = await hand.claim(3)
        assert len(running) == 3
        assert await hand.claim(1) == []
        assert [await is_handed(bench) for _ in range(2)] == [True, False]

    async def test_places_for_urgent_jobs_alone_are_kept_for_them(self, bench: Bench) -> None:
        await known(bench, priority=3)
        hand = await asleep(bench, takes=Takes(0, 1))
        assert not await is_handed(bench, priority=5)
        await hand.drain()
        assert await hand.claim(10) == []
        assert await is_handed(bench, priority=3)

    async def test_the_sleeper_with_the_fewest_gets_the_next(self, bench: Bench) -> None:
        hands = [await asleep(bench, name) for name in ("w1", "w2")]
        for _ in range(2):
            await lone(bench)
        assert [len(await hand.handed()) for hand in hands] == [1, 1]

    async def test_one_that_has_not_ended_a_job_for_a_second_gets_none_while_another_sleeps(self, bench: Bench) -> None:
        slow = await asleep(bench, "slow")
        await lone(bench)
        quick = await asleep(bench, "quick")
        bench.clock.advance(1_500)
        for number in range(3):
            await lone(bench)
            assert len(await quick.handed()) == 1, number
        assert [handed.number for handed in await slow.handed()] == [(await slow.beat()).handed]

    async def test_such_a_one_is_not_handed_a_job_that_another_sleeper_could_be_woken_for(self, bench: Bench) -> None:
        await asleep(bench, "slow")
        await lone(bench)
        takes_none = await asleep(bench, "agent", takes=NONE)
        bench.clock.advance(1_500)
        assert not await is_handed(bench)
        assert (await takes_none.wait(SHORT_MS)).work or (await bench.hand("w3").ids())

    async def test_such_a_one_gets_it_when_no_other_sleeps(self, bench: Bench) -> None:
        slow = await asleep(bench, "slow")
        await lone(bench)
        bench.clock.advance(1_500)
        assert await is_handed(bench)
        assert len(await slow.handed()) >= 1


@asynchronous
class TestOrdinaryWay:
    """Whatever might come between a job and its sleeper lets it become ready, and the sleeper is woken as always."""

    async def ordinary(self, bench: Bench, hand: Hand, **options: Unpack[JobOptions]) -> None:
        """A lone job is not handed; nor is it lost."""
        assert (await lone(bench, **options)).state is not State.running
        assert await hand.handed(SHORT_MS) == []

    async def test_two_jobs_of_one_call(self, bench: Bench) -> None:
        hand = await asleep(bench)
        answers = await bench.put(bench.job(), bench.job(task="other"))
        assert {answer.state for answer in answers} == {State.ready}
        assert await hand.handed(SHORT_MS) == []

    @pytest.mark.parametrize("why", ["delay", "due", "expires", "unique", "parent", "flow", "limit", "key", "breaker"])
    async def test_a_job_that_is_not_plain(self, bench: Bench, why: str) -> None:
        await bench.declare(
            GateRule("limit:x", concurrency=5), GateRule("breaker:b", breaker=None), GateRule("limit:k", concurrency=5)
        )
        parent = await bench.add(task="parent")
        boss = bench.hand("boss", tasks=("parent",))
        running = await boss.take()
        hand = await asleep(bench, tasks=("work",))
        options: dict[str, JobOptions] = {
            "delay": {"delay_ms": 1_000},
            "due": {"due_at_ms": bench.clock.now_ms},
            "expires": {"expires_ms": 60_000},
            "unique": {"unique": Unique("u")},
            "parent": {"after": (parent,)},
            "flow": {"flow": bench.id()},
            "limit": {"limits": ("x",)},
            "key": {"keys": ("k",)},
            "breaker": {"breaker": "b"},
        }
        await self.ordinary(bench, hand, **options[why])
        await boss.succeed(running)

    async def test_a_job_that_comes_with_rules(self, bench: Bench) -> None:
        await asleep(bench)
        (answer,) = await bench.put(bench.job(), rules=[GateRule("limit:x", concurrency=1)])
        assert answer.state is State.ready

    async def test_large_arguments(self, bench: Bench) -> None:
        await self.ordinary(bench, await asleep(bench), args=b'"' + b"x" * 20_000 + b'"')

    @pytest.mark.parametrize("gate", ["all", "queue:default", "task:work"])
    async def test_a_pause_stops_it(self, bench: Bench, gate: str) -> None:
        hand = await asleep(bench)
        await bench.change(GateChange(gate, pause=Pause("ada", "", bench.clock.now_ms)))
        await self.ordinary(bench, hand)
        assert await hand.claim() == []
        await bench.change(GateChange(gate, resume=True))
        assert len(await hand.claim(10)) == 1
        await hand.drain()
        assert await hand.claim(10) == []
        assert await is_handed(bench), "a gate that has no say any more is no reason"

    @pytest.mark.parametrize("gate", ["all", "queue:default", "task:work"])
    async def test_a_hold_stops_it(self, bench: Bench, gate: str) -> None:
        hand = await asleep(bench)
        await bench.change(GateChange(gate, hold_ms=60_000))
        await self.ordinary(bench, hand)

    @pytest.mark.parametrize("rule", ["concurrency", "rate", "budget"])
    async def test_a_limit_of_the_queue_counts_it(self, bench: Bench, rule: str) -> None:
        rules = {
            "concurrency": GateRule("queue:default", concurrency=5),
            "rate": GateRule("queue:default", interval_us=1_000, burst=5),
            "budget": GateRule("queue:default", cap=50, period="minute"),
        }
        hand = await asleep(bench)
        await bench.change(GateChange("queue:default", rule=rules[rule]))
        await self.ordinary(bench, hand)
        assert len(await hand.claim()) == 1

    async def test_a_full_queue_refuses_it(self, bench: Bench) -> None:
        await asleep(bench, tasks=("work",))
        await bench.add(delay_ms=60_000)
        await bench.change(GateChange("queue:default", rule=GateRule("queue:default", depth=1)))
        with pytest.raises(QueueFull):
            await lone(bench)

    async def test_a_draining_queue_takes_none(self, bench: Bench) -> None:
        hand = await asleep(bench)
        await bench.change(GateChange("queue:default", drain=True))
        with pytest.raises(QueueDraining):
            await lone(bench)
        assert await hand.handed(SHORT_MS) == []

    async def test_a_lane_that_has_a_job_ready_stays_in_order(self, bench: Bench) -> None:
        other = bench.hand("other", tasks=("work",), takes=TEN)
        ids = await bench.add_many(2)
        hand = Hand(bench.store, bench.clock, "w1", Serves(None, ("rest",)), takes=TEN)
        assert await hand.claim() == []
        await self.ordinary(bench, hand)
        assert (await other.ids(3))[:2] == ids

    async def test_a_job_of_another_class_that_the_sleeper_serves_goes_first(self, bench: Bench) -> None:
        # It sleeps though a job is ready: the wake-up is on its way.
        hand = await asleep(bench)
        first = (await bench.put(bench.job(task="first"), bench.job(task="first")))[0].id
        assert not await is_handed(bench)
        assert (await hand.ids())[0] == first

    async def test_a_job_for_which_another_sleeper_was_woken_goes_first(self, bench: Bench) -> None:
        hands = [await asleep(bench, name) for name in ("w1", "w2")]
        first = (await lone(bench, task="first", unique=Unique("u"))).id
        assert len([session for session in await bench.store.sessions() if session.idle]) == 1
        assert not await is_handed(bench)
        assert (await hands[1].ids())[0] == first

    async def test_what_is_ready_for_others_does_not_matter(self, bench: Bench) -> None:
        hand = await asleep(bench, tasks=("work",))
        await bench.add_many(3, task="of others")
        assert await is_handed(bench)
        await one_of(hand)

    async def test_a_job_that_is_due_goes_first(self, bench: Bench) -> None:
        later = await bench.add(delay_ms=1_000, tenant="t")
        hand = await asleep(bench)
        assert await is_handed(bench)
        await hand.succeed((await one_of(hand)).job)
        bench.clock.advance(1_000)
        await self.ordinary(bench, hand)
        assert later in await hand.ids(2)

    async def test_a_full_worker_is_not_woken_instead_of_one_that_is_free(self, bench: Bench) -> None:
        full = await asleep(bench, "a full one", takes=Takes(1, 1))
        await lone(bench)
        await one_of(full)
        free = await asleep(bench, "free", takes=NONE)
        await lone(bench, unique=Unique("u"))
        assert (await free.wait(SHORT_MS)).work

    async def test_a_handed_job_is_counted_once(self, bench: Bench) -> None:
        await known(bench, tenant="acme")
        hand, before = await asleep(bench), await bench.store.count()
        assert await is_handed(bench, tenant="acme")
        handed, counts = await one_of(hand), await bench.store.count()
        assert (counts.enqueued, counts.total(State.running), counts.total(State.ready)) == (before.enqueued + 1, 1, 0)
        await hand.succeed(handed.job)
        counts = await bench.store.count()
        assert (counts.succeeded, counts.total(State.running)) == (before.succeeded + 1, 0)
        await bench.check_depth("default", "acme")
