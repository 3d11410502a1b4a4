"""Behaviours of suspension: a job that sleeps or waits for an event holds nothing, spends nothing, and continues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from limpet.core.endings.transition import Suspend
from limpet.core.gate import FOREVER_MS, BreakerRule, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import MAX_EVENTS, MAX_EVENTS_BYTES, Claimed, Note, Signal
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand

DAY_MS = 86_400_000

Elsewhere = Callable[[Bench, Hand], Awaitable[bytes]]  # brings a job somewhere


def waiting(event: str, due_at_ms: int = FOREVER_MS) -> Note:
    """What a suspended job notes about what it waits for."""
    return Note("waiting", event, b"%d" % due_at_ms)


async def suspended(bench: Bench, hand: Hand, event: str | None, delay_ms: int | None = None) -> bytes:
    """A fresh job that has run and waits now."""
    id = await bench.add()
    events = () if event is None else (event,)
    assert (await hand.suspend(await hand.take(), delay_ms, *events)).state is State.scheduled
    return id


async def wakes(hand: Hand) -> bool:
    """Whether a sleeping worker was woken for work."""
    return (await hand.wait(5_000)).work


@asynchronous
class TestSleep:
    async def test_a_job_that_sleeps_spends_nothing_and_goes_on_when_it_is_time(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        answer = await hand.suspend(await hand.take(), DAY_MS)
        assert (answer.answer, answer.state) == ("done", State.scheduled)
        view = await bench.view(id)
        assert (view.state, view.due_at_ms) == (State.scheduled, bench.clock.now_ms + DAY_MS)
        assert (view.attempt, view.lost, view.held, view.reason) == (0, 0, 0, "")
        assert (view.token, view.session, view.notes) == (None, None, ())
        assert await attempts_of(bench.store, id) == ()
        bench.clock.advance(DAY_MS - 1)
        assert await hand.claim() == []
        bench.clock.advance(1)
        job = await hand.take()
        assert (job.id, job.attempt, job.lost, job.held, job.held_since_ms) == (id, 1, 0, 0, None)

    async def test_what_was_spent_before_stays_spent(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.fail(await hand.take())
        await hand.lose(await hand.take())
        await hand.snooze(await hand.take(), 1_000)
        bench.clock.advance(1_000)
        await hand.suspend(await hand.take(), 1_000)
        view = await bench.view(id)
        assert (view.attempt, view.lost, view.reason) == (1, 1, "")
        assert [row.outcome for row in await attempts_of(bench.store, id)] == ["retried", "lost", "snoozed"]
        bench.clock.advance(1_000)
        job = await hand.take()
        assert (job.attempt, job.lost) == (2, 1)

    async def test_a_job_that_got_as_far_as_a_sleep_is_no_longer_put_off(self, bench: Bench) -> None:
        """Who is refused once before it sleeps for days, and once after, has not been refused for days."""
        id = await bench.add(limits=("api",))
        hand = bench.hand()
        await hand.hold(await hand.take(), "limit:api", 1_000)
        bench.clock.advance(1_000)
        await hand.suspend(await hand.take(), 3 * DAY_MS)
        assert (await bench.view(id)).held == 0
        bench.clock.advance(3 * DAY_MS)
        job = await hand.take()
        assert (job.held, job.held_since_ms) == (0, None)

    async def test_a_sleep_without_length_is_over_at_once_and_takes_its_turn(self, bench: Bench) -> None:
        first, second = await bench.add_many(2)
        bench.clock.advance(10)
        hand = bench.hand()
        answer = await hand.suspend(await hand.take(), 0)
        assert (answer.answer, answer.state) == ("done", State.ready)
        assert (await bench.view(first)).due_at_ms == bench.clock.now_ms
        assert await hand.ids(2) == [second, first]

    async def test_a_sleep_without_an_end_is_ended_by_a_person(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, None)
        assert (await bench.view(id)).due_at_ms == FOREVER_MS
        bench.clock.advance(365 * DAY_MS)
        assert await hand.claim() == []
        assert await bench.retry(id) == ["retried"]
        assert await hand.ids() == [id]

    async def test_a_person_ends_a_sleep_early(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, None, DAY_MS)
        assert await bench.retry(id) == ["retried"]
        assert (await hand.take()).attempt == 1

    async def test_a_worker_learns_when_the_sleep_is_over(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, None, DAY_MS)
        assert (await hand.ask()).next_at_ms == bench.clock.now_ms + DAY_MS
        await bench.cancel(id)
        await suspended(bench, hand, None)
        await suspended(bench, hand, "approved")
        assert (await hand.ask()).next_at_ms is None

    async def test_a_worker_that_sleeps_for_longer_hears_of_it(self, bench: Bench) -> None:
        busy, idle = bench.hand("busy"), bench.hand("idle")
        await bench.add()
        job = await busy.take()
        assert await idle.claim() == []
        await busy.suspend(job, 1_000)
        assert await wakes(idle)

    async def test_a_job_that_sleeps_is_cancelled_at_once(self, bench: Bench) -> None:
        id = await suspended(bench, bench.hand(), None, DAY_MS)
        assert await bench.cancel(id) == ["cancelled"]
        assert await bench.state(id) is State.cancelled

    async def test_a_job_that_was_asked_to_stop_does_not_sleep(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await bench.cancel(id, reason="not needed") == ["cancelling"]
        answer = await hand.suspend(job, DAY_MS, "approved")
        assert (answer.answer, answer.state) == ("done", State.cancelled)
        view = await bench.view(id)
        assert (view.state, view.reason, view.notes) == (State.cancelled, "not needed", ())

    async def test_its_slot_is_free_while_it_sleeps(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        first, second = await bench.add_many(2, keys=("x",))
        hand = bench.hand()
        sleeper = await hand.take()
        assert await hand.claim() == []
        await hand.suspend(sleeper, 1_000)
        other = await hand.take()
        assert (sleeper.id, other.id) == (first, second)
        bench.clock.advance(1_000)
        assert await hand.claim() == []
        await hand.succeed(other)
        assert await hand.ids() == [first]

    async def test_its_start_stays_spent(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", interval_us=60_000_000, burst=1))
        await bench.add_many(2, limits=("x",))
        hand = bench.hand()
        await hand.suspend(await hand.take(), DAY_MS)
        assert await hand.claim() == []
        bench.clock.advance(60_000)
        assert len(await hand.claim()) == 1

    async def test_a_probe_that_sleeps_makes_room_for_another(self, bench: Bench) -> None:
        rule = BreakerRule(failures=1, cooldown_ms=1_000, probe_after_ms=1_000)
        await bench.declare(GateRule("breaker:api", breaker=rule))
        await bench.add_many(3, breaker="api")
        hand = bench.hand()
        await hand.fail(await hand.take(), delay_ms=DAY_MS)
        bench.clock.advance(1_000)
        probe = await hand.take()
        assert probe.probe
        await hand.suspend(probe, DAY_MS)
        bench.clock.advance(1_000)
        assert (await hand.take()).probe

    async def test_a_started_job_outsleeps_its_time_to_start(self, bench: Bench) -> None:
        id = await bench.add(expires_ms=5_000)
        hand = bench.hand()
        await hand.suspend(await hand.take(), 60_000)
        await bench.sweep(60_000, hand)
        assert await hand.ids() == [id]

    async def test_its_key_stays_held(self, bench: Bench) -> None:
        id = await bench.add(unique=Unique("once"))
        hand = bench.hand()
        await hand.suspend(await hand.take(), DAY_MS)
        (answer,) = await bench.put(bench.job(unique=Unique("once")))
        assert (answer.id, answer.existing, answer.state) == (id, True, State.scheduled)

    async def test_dependents_go_on_waiting(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = bench.hand()
        await hand.suspend(await hand.take(), 1_000)
        assert await bench.state(child) is State.blocked
        bench.clock.advance(1_000)
        assert await hand.drain() == [parent, child]

    async def test_the_same_settlement_again_is_answered_alike(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        first = await hand.settle(Suspend(job.id, job.token, 0), seq=1)
        again = await hand.take()
        assert await hand.settle(Suspend(job.id, job.token, 0), seq=1) == first
        assert (await bench.view(id)).token == again.token

    @pytest.mark.parametrize("event", [None, "approved"])
    async def test_an_old_holder_puts_nobody_to_sleep(self, bench: Bench, event: str | None) -> None:
        id = await bench.add()
        hand = bench.hand()
        old = await hand.take()
        await hand.release(old)
        new = await hand.take()
        answer = await hand.suspend(old, DAY_MS, *() if event is None else (event,))
        assert (answer.answer, answer.state) == ("stale", State.running)
        view = await bench.view(id)
        assert (view.token, view.notes) == (new.token, ())

    async def test_notes_are_there_when_it_goes_on(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        job = await hand.take()
        notes = (Note("checkpoint", "", b"3"), Note("step", "charge", b'"ch_1"'))
        for note in notes:
            assert await hand.save(job, note)
        await hand.suspend(job, 1_000)
        bench.clock.advance(1_000)
        assert (await hand.take()).notes == notes

    async def test_lines_for_people_are_not_handed_out_again(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        kept, line = Note("checkpoint", "", b"3"), Note("log", "1.1", b'"a line"')
        for note in (kept, line):
            assert await hand.save(job, note)
        await hand.suspend(job, 0)
        assert (await hand.take()).notes == (kept,)
        assert (await bench.view(id)).notes == (kept, line)


@asynchronous
class TestWaiting:
    async def test_a_job_that_waits_for_an_event_says_so(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved")
        view = await bench.view(id)
        assert (view.state, view.due_at_ms, view.attempt) == (State.scheduled, FOREVER_MS, 0)
        assert view.notes == (waiting("approved"),)
        bench.clock.advance(365 * DAY_MS)
        assert await hand.claim() == []

    async def test_a_wait_may_end_without_the_event(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved", 1_000)
        due_at_ms = bench.clock.now_ms + 1_000
        assert (await bench.view(id)).due_at_ms == due_at_ms
        bench.clock.advance(1_000)
        job = await hand.take()
        assert (job.id, job.attempt, job.notes) == (id, 1, (waiting("approved", due_at_ms),))

    async def test_a_wait_without_length_is_over_at_once(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand()
        await hand.suspend(await hand.take(), 0, "approved")
        assert (await hand.take()).notes == (waiting("approved", bench.clock.now_ms),)

    async def test_an_event_that_came_before_ends_the_wait_at_once(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        assert await bench.signal(Signal(id, "approved", b"true")) == ["kept"]
        bench.clock.advance(10)
        answer = await hand.suspend(job, None, "approved")
        assert (answer.answer, answer.state) == ("done", State.ready)
        assert (await bench.view(id)).due_at_ms == bench.clock.now_ms
        job = await hand.take()
        assert (job.attempt, job.notes) == (1, (Note("event", "approved", b"true"),))

    async def test_an_event_that_came_before_rouses_a_sleeping_worker(self, bench: Bench) -> None:
        busy, idle = bench.hand("busy"), bench.hand("idle")
        id = await bench.add()
        job = await busy.take()
        await bench.signal(Signal(id, "approved", b"true"))
        assert await idle.claim() == []
        await busy.suspend(job, None, "approved")
        assert await wakes(idle)

    async def test_it_waits_for_several_events_at_once(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.suspend(await hand.take(), DAY_MS, "paid", "left", "grüße")
        due_at_ms = bench.clock.now_ms + DAY_MS
        assert set((await bench.view(id)).notes) == {waiting(name, due_at_ms) for name in ("paid", "left", "grüße")}

    async def test_one_of_several_events_that_came_before_ends_the_wait_at_once(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        job = await hand.take()
        await bench.signal(Signal(id, "left", b"1"))
        assert (await hand.suspend(job, None, "paid", "left")).state is State.ready
        assert (await hand.take()).notes == (Note("event", "left", b"1"),)

    async def test_a_new_wait_takes_the_place_of_the_one_before(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved", 1_000)
        bench.clock.advance(1_000)
        await hand.suspend(await hand.take(), 2_000, "paid")
        assert (await bench.view(id)).notes == (waiting("paid", bench.clock.now_ms + 2_000),)
        bench.clock.advance(2_000)
        await hand.suspend(await hand.take(), 3_000)
        assert (await bench.view(id)).notes == ()

    async def test_a_wait_that_is_over_at_once_ends_the_one_before(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved", 1_000)
        assert await bench.signal(Signal(id, "paid", b"1")) == ["kept"]
        bench.clock.advance(1_000)
        await hand.suspend(await hand.take(), None, "paid")
        assert (await bench.view(id)).notes == (Note("event", "paid", b"1"),)

    async def test_a_person_ends_a_wait(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved")
        assert await bench.retry(id) == ["retried"]
        assert await hand.ids() == [id]


async def blocked(bench: Bench, hand: Hand) -> bytes:
    return await bench.add(after=(await bench.add(delay_ms=DAY_MS),))


async def delayed(bench: Bench, hand: Hand) -> bytes:
    return await bench.add(delay_ms=DAY_MS)


async def ready(bench: Bench, hand: Hand) -> bytes:
    return await bench.add()


async def running(bench: Bench, hand: Hand) -> bytes:
    await bench.add()
    return (await hand.take()).id


async def snoozed(bench: Bench, hand: Hand) -> bytes:
    await bench.add()
    job = await hand.take()
    await hand.snooze(job, DAY_MS)
    return job.id


async def asleep(bench: Bench, hand: Hand) -> bytes:
    return await suspended(bench, hand, None, DAY_MS)


async def waiting_for_another(bench: Bench, hand: Hand) -> bytes:
    return await suspended(bench, hand, "paid", DAY_MS)


async def waited_too_long(bench: Bench, hand: Hand) -> bytes:
    id = await suspended(bench, hand, "approved", 1_000)
    bench.clock.advance(1_000)
    assert (await hand.take()).id == id
    return id


async def failed_after_the_wait(bench: Bench, hand: Hand) -> bytes:
    id = await suspended(bench, hand, "approved", 1_000)
    bench.clock.advance(1_000)
    await hand.fail(await hand.take(), delay_ms=DAY_MS)
    return id


async def put_off_by_a_person(bench: Bench, hand: Hand) -> bytes:
    id = await suspended(bench, hand, "approved")
    assert await bench.retry(id, delay_ms=DAY_MS) == ["retried"]
    return id


# Live jobs that do not wait for the event "approved" at this moment.
ELSEWHERE = [
    blocked,
    delayed,
    ready,
    running,
    snoozed,
    asleep,
    waiting_for_another,
    waited_too_long,
    failed_after_the_wait,
    put_off_by_a_person,
]


async def succeeded(bench: Bench, hand: Hand) -> bytes:
    await bench.add()
    job = await hand.take()
    await hand.succeed(job)
    return job.id


async def dead(bench: Bench, hand: Hand) -> bytes:
    await bench.add()
    job = await hand.take()
    await hand.bury(job)
    return job.id


async def cancelled(bench: Bench, hand: Hand) -> bytes:
    id = await suspended(bench, hand, "approved")
    await bench.cancel(id)
    return id


@asynchronous
class TestSignal:
    async def test_a_signal_wakes_the_job_that_waits_for_it(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved", DAY_MS)
        bench.clock.advance(500)
        assert await bench.signal(Signal(id, "approved", b'{"by":"ada"}')) == ["woken"]
        view = await bench.view(id)
        assert (view.state, view.due_at_ms, view.attempt) == (State.ready, bench.clock.now_ms, 0)
        job = await hand.take()
        assert (job.id, job.attempt) == (id, 1)
        assert job.notes == (Note("event", "approved", b'{"by":"ada"}'),)

    @pytest.mark.parametrize("event", ["paid", "left", "grüße"])
    async def test_any_of_the_events_that_it_waits_for_wakes_a_job_once(self, bench: Bench, event: str) -> None:
        id = await bench.add()
        hand = bench.hand()
        await hand.suspend(await hand.take(), DAY_MS, "paid", "left", "grüße")
        assert await bench.signal(Signal(id, "late", b"0")) == ["kept"]
        assert await bench.signal(Signal(id, event, b"1"), Signal(id, event, b"2")) == ["woken", "already"]
        assert {note.kind for note in (await bench.view(id)).notes} == {"event"}
        other = next(name for name in ("paid", "left") if name != event)
        assert await bench.signal(Signal(id, other, b"3")) == ["kept"]
        (job,) = await hand.claim(5)
        assert {(note.kind, note.name) for note in job.notes} == {("event", name) for name in ("late", event, other)}
        await bench.check_books()

    async def test_a_signal_rouses_a_sleeping_worker(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved")
        assert await hand.claim() == []
        await (await bench.other()).signal(Signal(id, "approved", b"1"))
        assert await wakes(hand)
        assert await hand.ids() == [id]

    async def test_a_woken_job_goes_by_its_gates(self, bench: Bench) -> None:
        await bench.declare(GateRule("limit:x", concurrency=1))
        first, second = await bench.add_many(2, keys=("x",))
        hand = bench.hand()
        await hand.suspend(await hand.take(), None, "approved")
        other = await hand.take()
        assert await bench.signal(Signal(first, "approved", b"1")) == ["woken"]
        assert await hand.claim() == []
        await hand.succeed(other)
        assert (other.id, await hand.ids()) == (second, [first])

    @pytest.mark.parametrize("elsewhere", ELSEWHERE)
    async def test_a_signal_is_kept_for_a_job_that_does_not_wait_for_it(
        self, bench: Bench, elsewhere: Elsewhere
    ) -> None:
        id = await elsewhere(bench, bench.hand())
        before = await bench.view(id)
        assert await bench.signal(Signal(id, "approved", b"1")) == ["kept"]
        after = await bench.view(id)
        assert (after.state, after.due_at_ms, after.token) == (before.state, before.due_at_ms, before.token)
        assert set(after.notes) == {*before.notes, Note("event", "approved", b"1")}

    async def test_a_signal_kept_for_a_blocked_job_is_there_when_it_runs(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        await bench.signal(Signal(child, "approved", b"1"))
        hand = bench.hand()
        await hand.succeed(await hand.take())
        assert (await hand.take()).notes == (Note("event", "approved", b"1"),)

    async def test_the_first_signal_of_a_name_stands(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "approved")
        assert await bench.signal(Signal(id, "approved", b"1")) == ["woken"]
        assert await bench.signal(Signal(id, "approved", b"2")) == ["already"]
        job = await hand.take()
        assert await bench.signal(Signal(id, "approved", b"3")) == ["already"]
        await hand.fail(job, delay_ms=DAY_MS)
        assert await bench.signal(Signal(id, "approved", b"4")) == ["already"]
        assert (await bench.view(id)).notes == (Note("event", "approved", b"1"),)

    @pytest.mark.parametrize("ended", [succeeded, dead, cancelled])
    async def test_a_job_that_has_ended_takes_no_signal(self, bench: Bench, ended: Elsewhere) -> None:
        id = await ended(bench, bench.hand())
        before = await bench.view(id)
        assert await bench.signal(Signal(id, "approved", b"1")) == ["finished"]
        assert await bench.view(id) == before

    async def test_a_job_that_is_not_there_takes_no_signal(self, bench: Bench) -> None:
        id = bench.id()
        assert await bench.signal(Signal(id, "approved", b"1")) == ["gone"]
        await bench.put(bench.job(id=id))
        assert (await bench.hand().take()).notes == ()

    async def test_signals_are_answered_in_order(self, bench: Bench) -> None:
        hand = bench.hand()
        one, two = await suspended(bench, hand, "approved"), await suspended(bench, hand, "approved")
        answers = await bench.signal(
            Signal(two, "paid", b"1"),
            Signal(bench.id(), "approved", b"2"),
            Signal(two, "approved", b"3"),
            Signal(one, "approved", b"4"),
            Signal(two, "approved", b"5"),
        )
        assert answers == ["kept", "gone", "woken", "woken", "already"]
        assert await bench.signal() == []
        notes = {job.id: {(note.name, note.body) for note in job.notes} for job in await hand.claim(2)}
        assert notes == {one: {("approved", b"4")}, two: {("paid", b"1"), ("approved", b"3")}}

    async def test_many_jobs_are_woken_in_one_call(self, bench: Bench) -> None:
        ids = await bench.add_many(300)
        hand = bench.hand()
        jobs = await hand.claim(300)
        await hand.settle(*(Suspend(job.id, job.token, None, ("go",)) for job in jobs))
        assert await bench.signal(*(Signal(id, "go", b"1") for id in ids)) == ["woken"] * 300
        assert sorted(await hand.drain(100)) == ids

    async def test_a_job_keeps_so_many_events_and_no_more(self, bench: Bench) -> None:
        hand = bench.hand()
        id = await suspended(bench, hand, "go")
        answers = await bench.signal(*(Signal(id, f"e{n}", b"1") for n in range(MAX_EVENTS + 1)))
        assert answers == ["kept"] * MAX_EVENTS + ["full"]
        before = await bench.view(id)
        assert await bench.signal(Signal(id, "go", b"1"), Signal(id, "e0", b"2")) == ["full", "already"]
        assert await bench.view(id) == before
        other = await suspended(bench, hand, "go")
        assert await bench.signal(Signal(id, "go", b"1"), Signal(other, "go", b"1")) == ["full", "woken"]

    async def test_the_events_of_a_job_take_so_much_and_no_more(self, bench: Bench) -> None:
        id = await bench.add()
        large = MAX_EVENTS_BYTES // 8
        for number in range(8):
            value = b'"%s"' % (b"x" * (large - 2))
            assert await bench.signal(Signal(id, f"e{number}", value)) == ["kept"]
        assert await bench.signal(Signal(id, "one more", b"1")) == ["full"]

    async def test_events_outlive_whatever_happens_to_the_job(self, bench: Bench) -> None:
        id = await bench.add()
        hand = bench.hand()
        event = Note("event", "approved", b"1")

        async def retaken() -> Claimed:
            job = await hand.take()
            assert job.notes == (event,)
            return job

        job = await hand.take()
        await bench.signal(Signal(id, "approved", b"1"))
        await hand.fail(job)
        await hand.lose(await retaken())
        await hand.release(await retaken())
        await hand.bury(await retaken())
        await bench.retry(id, forget=("*",))
        await hand.succeed(await retaken())
        assert (await bench.view(id)).notes == (event,)

    async def test_values_are_kept_as_they_are(self, bench: Bench) -> None:
        id = await bench.add()
        values = {"null": b"null", "grüße: 1*?": '"grüße\\u0000"'.encode(), "large": b'"%s"' % (b"x" * 100_000)}
        await bench.signal(*(Signal(id, name, value) for name, value in values.items()))
        assert {note.name: note.body for note in (await bench.hand().take()).notes} == values
