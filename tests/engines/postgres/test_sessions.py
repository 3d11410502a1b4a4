"""What sessions and sweeps promise on PostgreSQL alone: they leave no trace, and nothing stands in their way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from limpet.core.endings.transition import Release
from limpet.core.gate import GateChange, Pause
from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from tests.engines.postgres.places import Place, a_place
from tests.servers.installations import POSTGRES

TRACES = "SELECT " + ", ".join(
    f"(SELECT count(*) FROM lp.{table})" for table in ("session", "sleeper", "lease", "receipt", "running")
)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


async def test_a_session_that_leaves_leaves_no_trace(place: Place) -> None:
    await place.add_many(3)
    hand = place.hand("gone", tasks=("work",))
    await hand.claim(2)
    await hand.succeed(*await hand.claim(1))
    assert await hand.claim() == []
    assert place.ask(TRACES)[0][:2] == (1, 1)
    await hand.leave()
    assert place.ask(TRACES) == [(0, 0, 0, 0, 0)]


async def test_a_session_that_went_silent_leaves_no_trace(place: Place) -> None:
    id = await place.add()
    hand = place.hand("gone", tasks=("work",))
    await hand.take()
    assert await hand.claim() == []
    await place.lose(id)
    assert place.ask(TRACES) == [(0, 0, 0, 0, 0)]


@pytest.mark.parametrize("how", ["leaves", "goes silent"])
async def test_what_a_sleeper_held_wakes_another_and_not_the_one_that_is_gone(place: Place, how: str) -> None:
    id = await place.add()
    gone, other = place.hand("a"), place.hand("b")
    await gone.take()
    assert await gone.claim() == []
    assert await other.claim() == []
    await (gone.leave() if how == "leaves" else place.lose(id, other))
    assert (await other.wait(5_000)).work


async def test_more_silent_sessions_than_one_sweep_takes_are_all_taken(place: Place) -> None:
    await place.sweep(20_000)
    await place.add_many(80)
    for number in range(80):
        await place.hand(f"w{number}", ttl_ms=2_000).take()
    taken = [await place.sweep(1_000) for _ in range(4)]
    assert sum(taken) == 80
    assert max(taken) == 64
    assert place.ask(TRACES) == [(0, 0, 0, 0, 0)]


async def test_a_session_that_holds_more_than_one_sweep_takes_stays_until_the_last(place: Place) -> None:
    await place.sweep(20_000)
    await place.add_many(5)
    await place.hand(ttl_ms=2_000).claim(5)
    for _ in range(3):
        place.clock.advance(1_000)
        await place.store.expire(2, now_ms=place.clock.now_ms)
    assert len(await place.store.held("w1")) == 1
    assert place.ask("SELECT count(*) FROM lp.session") == [(1,)]
    await place.store.expire(2, now_ms=place.clock.now_ms)
    assert place.ask(TRACES) == [(0, 0, 0, 0, 0)]


async def test_rare_sweeps_take_back_from_those_who_were_silent_at_the_last_one(place: Place) -> None:
    """Agents only and no worker: nobody sweeps every second, and yet nothing is held for ever."""
    assert await place.store.expire(now_ms=place.clock.now_ms) == 0
    await place.add()
    await place.hand().take()
    taken = [await place.store.expire(now_ms=place.clock.advance(60_000)) for _ in range(2)]
    assert taken == [0, 1]


async def test_one_limit_holds_for_silent_sessions_and_overdue_leases_together(place: Place) -> None:
    await place.add_many(2, policy=Policy(timeout_ms=5_000, hard_timeout_ms=10_000))
    beating, silent = place.hand("beating"), place.hand("silent", ttl_ms=1_000)
    await place.sweep(1_000, beating)
    await beating.take()
    await place.sweep(39_000, beating)
    await silent.take()
    place.clock.advance(2_000)
    taken = [await place.store.expire(1, now_ms=place.clock.now_ms) for _ in range(3)]
    assert taken == [1, 1, 0]


async def test_what_a_silent_session_holds_past_its_deadline_is_taken_once(place: Place) -> None:
    id = await place.add(policy=Policy(timeout_ms=5_000, hard_timeout_ms=6_000))
    watcher, silent = place.hand("watcher"), place.hand("silent", ttl_ms=60_000)
    await place.sweep(20_000, watcher)
    await silent.take()
    place.ask("UPDATE lp.lease SET hard_until_ms = %s RETURNING 1", place.clock.now_ms + 500)
    place.ask("UPDATE lp.session SET deadline_ms = %s WHERE id = 'silent' RETURNING 1", place.clock.now_ms + 500)
    assert await place.sweep(1_000, watcher) == 1
    assert (await place.view(id)).lost == 1
    assert [attempt.message for attempt in await attempts_of(place.store, id)] == ["session silent went silent"]


async def test_a_job_that_went_on_to_another_session_is_no_longer_held(place: Place) -> None:
    await place.add_many(2)
    first, second = place.hand("first"), place.hand("second")
    one, two = await first.claim(2)
    await first.fail(one)
    again = await second.take()
    assert again.id == one.id
    assert [each.id for each in await place.store.held("first")] == [two.id]
    await first.leave()
    assert [(each.id, each.token) for each in await place.store.held("second")] == [(again.id, again.token)]


async def test_a_beat_names_only_those_that_shall_stop(place: Place) -> None:
    await place.add_many(3)
    hand = place.hand()
    jobs = await hand.claim(3)
    await place.cancel(jobs[1].id)
    assert (await hand.beat()).cancels == ((jobs[1].id, jobs[1].token),)


async def test_notes_on_a_beat_are_taken_one_by_one(place: Place) -> None:
    await place.add_many(2)
    hand = place.hand()
    one, two = await hand.claim(2)
    notes = [Note("progress", "", b"1"), Note("step", "a\x00b", b"2"), Note("progress", "", b"3")]
    await hand.beat([(two.id, two.token, notes[0]), (one.id, one.token + 1, notes[0]), (two.id, two.token, notes[2])])
    await hand.beat([(one.id, one.token, notes[1])])
    assert (await place.view(two.id)).notes == (notes[2],)
    assert (await place.view(one.id)).notes == (Note("step", "a\ufffdb", b"2"),)
    assert (await place.store.count()).stale == 1


async def test_a_session_past_its_deadline_is_not_listed(place: Place) -> None:
    place.clock.advance(-60_000)
    await place.hand("late").beat()
    place.clock.advance(60_000)
    for name in ("b", "a", "B"):
        await place.hand(name).beat()
    assert [view.session for view in await place.store.sessions()] == ["B", "a", "b"]


async def test_a_lease_without_jobs_does_not_stand_before_others(place: Place) -> None:
    """As after a restored backup: there are leases whose jobs are no more."""
    hand = place.hand()
    await place.sweep(20_000, hand)
    place.ask("INSERT INTO lp.lease SELECT n, 'w1', 1, 1 FROM generate_series(1, 300) AS n RETURNING 1")
    await place.add(policy=Policy(timeout_ms=5_000, hard_timeout_ms=6_000))
    await hand.take()
    assert await place.sweep(60_000, hand) == 1
    assert place.ask("SELECT count(*) FROM lp.lease") == [(0,)]


async def test_who_was_not_started_in_time_is_cancelled_once_it_is_handed_back(place: Place) -> None:
    id, hand = await place.add(expires_ms=2_000), place.hand()
    job = await hand.take()
    await place.sweep(5_000, hand)
    assert await place.state(id) is State.running
    await hand.settle(Release(job.id, job.token))
    await place.sweep(1_000, hand)
    view = await place.view(id)
    assert (view.state, view.reason) == (State.cancelled, "expired")


async def test_the_time_to_start_is_over_at_its_very_instant(place: Place) -> None:
    id = await place.add(expires_ms=2_000)
    child = await place.add(after=(id,))
    await place.store.expire(now_ms=place.clock.advance(1_999))
    assert await place.state(id) is State.ready
    await place.store.expire(now_ms=place.clock.advance(1))
    assert await place.states([id, child]) == [State.cancelled] * 2


async def test_the_sweep_folds_what_was_counted_when_there_is_much_of_it(place: Place) -> None:
    await place.add()
    hand = place.hand()
    await hand.drain()
    place.ask("INSERT INTO lp.tally SELECT lane, '{2,15}', '{0,1}' FROM lp.job, generate_series(1, 5000) RETURNING 1")
    await place.store.expire(now_ms=place.clock.now_ms)
    assert place.ask("SELECT count(*) FROM lp.tally") == [(0,)]
    assert (await place.store.count()).stale == 5_000


@pytest.mark.parametrize("key", ["queue:default", "task:work", "all"])
async def test_a_place_that_has_drained_ends_paused(place: Place, key: str) -> None:
    await place.add()
    await place.add(queue="other", task="else")
    hand = place.hand(tasks=("work",))
    job = await hand.take()
    await place.change(GateChange(key, drain=True), GateChange("limit:k", drain=True))
    await place.sweep(1_000, hand)
    assert (await place.store.gates(key))[0].paused is None
    await hand.succeed(job)
    await place.hand("w2").drain()
    await place.sweep(1_000, hand)
    assert (await place.store.gates(key))[0].paused == Pause("drain", "drained", place.clock.now_ms)
    assert (await place.store.gates("limit:"))[0].paused is None
    await place.change(GateChange(key, resume=True))
    await place.add()


async def test_a_pause_of_a_draining_place_stays_as_it_was_said(place: Place) -> None:
    pause = Pause("ada", "maintenance", place.clock.now_ms)
    await place.change(GateChange("queue:default", drain=True, pause=pause))
    await place.sweep(2_000)
    assert (await place.store.gates("queue:"))[0].paused == pause
