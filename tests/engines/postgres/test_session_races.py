"""Beats, sweeps, claims and leaves of the same sessions at once: nothing is lost or doubled."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from limpet.core.gate import GateChange
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import State
from tests.engines.postgres.places import LEASES, NEW_LEASES, Place, a_place, soon, start
from tests.servers.installations import POSTGRES


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with a_place(POSTGRES) as place:
        yield place


# -- beats and sweeps


async def test_a_beat_that_is_under_way_saves_its_session(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    job = await silent.take()
    place.clock.advance(2_500)
    with place.holding(f"SELECT FROM lp.running WHERE token = {job.token} FOR UPDATE"):
        # Its note waits for the job: it holds the session meanwhile.
        beat = start(silent.beat([(job.id, job.token, Note("progress", "", b"1"))]))
        await place.until_waiting(1)
        assert await soon(place.store.expire(now_ms=place.clock.now_ms)) == 0
    assert not (await beat).fresh
    assert await place.state(job.id) is State.running
    assert await place.sweep(1_000, watcher) == 0


async def test_a_beat_that_comes_while_its_session_is_swept_opens_a_new_one(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    job = await silent.take()
    place.clock.advance(2_500)
    with place.holding(LEASES):
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        beat = start(silent.beat())
        await place.until_waiting(2)
    assert await sweep == 1
    assert (await beat).fresh
    assert await place.store.held("silent") == []
    assert (await place.view(job.id)).lost == 1


async def test_one_who_has_beaten_since_the_look_is_not_silent(place: Place) -> None:
    """The sweep had its list of the silent when the beat was committed."""
    other = await place.another()
    watcher, first, second = place.hand("watcher"), place.hand("a", ttl_ms=1_000), other.hand("b", ttl_ms=2_000)
    await place.add()
    await place.sweep(20_000, watcher)
    await first.beat()
    job = await second.take()
    place.clock.advance(2_500)
    # The first session that is locked takes its time, and meanwhile the second beats.
    slowly = "SELECT CASE session WHEN ''a'' THEN pg_advisory_xact_lock(77) IS NOT NULL ELSE true END"
    place.ask(f"CREATE FUNCTION lp.slowly(session text) RETURNS boolean LANGUAGE sql VOLATILE AS '{slowly}'")
    place.ask("ALTER FUNCTION lp.lock_silent(bigint) RENAME TO quick")
    ((body,),) = place.ask("SELECT pg_get_functiondef('lp.quick(bigint)'::regprocedure)")
    assert "deadline_ms <= p_since" in body
    place.ask(
        body.replace("quick", "lock_silent").replace(
            "deadline_ms <= p_since", "deadline_ms <= p_since AND lp.slowly(id)"
        )
    )
    with place.holding("SELECT pg_advisory_xact_lock(77)"):
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        assert not (await second.beat()).fresh
    assert await sweep == 0
    assert await place.state(job.id) is State.running
    assert {session for (session,) in place.ask("SELECT id FROM lp.session")} == {"watcher", "b"}


async def test_two_sweeps_at_once_are_one(place: Place) -> None:
    await place.add()
    other = await place.another()
    watcher, silent = place.hand("watcher"), place.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    await silent.take()
    place.clock.advance(2_500)
    with place.holding(LEASES):
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(1)
        assert await soon(other.store.expire(now_ms=place.clock.now_ms)) == 0
    assert await sweep == 1


async def test_a_sweep_and_a_settlement_of_the_same_job_agree(place: Place) -> None:
    await place.add_many(2)
    other = await place.another()
    watcher, silent = place.hand("watcher"), other.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    one, two = await silent.claim(2)
    place.clock.advance(2_500)
    with place.holding(LEASES):
        settling = start(silent.succeed(one))
        await place.until_waiting(1)  # one has left `running`, unseen
        sweep = start(place.store.expire(now_ms=place.clock.now_ms))
        await place.until_waiting(2)
    assert [answer.answer for answer in await settling] == ["done"]
    assert await sweep == 1
    assert await place.states([one.id, two.id]) == [State.succeeded, State.ready]
    assert await place.store.held("silent") == []


async def test_what_a_handlers_open_transaction_has_settled_is_left_to_it(place: Place) -> None:
    await place.add_many(2)
    watcher, silent = place.hand("watcher"), place.hand("silent", ttl_ms=2_000)
    await place.sweep(20_000, watcher)
    one, two = await silent.claim(2)
    with place.holding() as line:
        line.execute(place.sql("SELECT lp.settle_on_1(%s, %s, '1', NULL)"), (one.id, one.token))
        assert await soon(place.sweep(3_000, watcher)) == 1
        assert await place.states([one.id, two.id]) == [State.running, State.ready]
        line.commit()
    assert await place.sweep(1_000, watcher) == 0
    assert await place.states([one.id, two.id]) == [State.succeeded, State.ready]
    assert place.ask("SELECT id FROM lp.session") == [("watcher",)]


@pytest.mark.parametrize("which", ["job", "dependent"])
async def test_the_sweep_waits_for_nobody_who_replaces_a_job_that_was_not_started_in_time(
    place: Place, which: str
) -> None:
    key, other = Unique("k", on_duplicate="replace"), await place.another()
    held = State.ready if which == "job" else State.cancelled
    job = place.job(expires_ms=1_000, unique=key if which == "job" else None)
    await place.put(job)
    child = place.job(after=(job.id,), unique=None if which == "job" else key, task="work")
    await place.put(child)
    neighbour = await place.add(expires_ms=1_000)
    place.clock.advance(1_500)
    with contextlib.closing(psycopg.connect(place.server.url)) as line:
        new = place.job(unique=key, delay_ms=60_000, expires_ms=120_000)
        await other.joined.enqueue_on(line, [new], now_ms=place.clock.now_ms)
        await soon(place.store.expire(now_ms=place.clock.now_ms))
        assert await place.states([job.id, child.id]) == [held, State.blocked]
        assert await place.state(neighbour) is State.cancelled
        line.commit()
    await place.store.expire(now_ms=place.clock.advance(1_000))
    await place.hand(tasks=("none",)).claim()  # a dependent that somebody held is looked at again
    after = [State.scheduled, State.blocked] if which == "job" else [State.cancelled] * 2
    assert await place.states([job.id, child.id]) == after


async def test_a_drained_queue_ends_paused_while_others_enqueue_elsewhere(place: Place) -> None:
    await place.add(queue="q")
    await place.change(GateChange("queue:q", drain=True))
    other = await place.another()
    hand = place.hand()
    await place.sweep(1_000, hand)
    assert (await place.store.gates("queue:q"))[0].paused is None
    await hand.drain()
    with place.holding("LOCK TABLE lp.post IN EXCLUSIVE MODE"):
        enqueue = start(other.add(queue="else"))
        await place.until_waiting(1)
        await soon(place.store.expire(now_ms=place.clock.advance(1_000)))
    await enqueue
    pause = (await place.store.gates("queue:q"))[0].paused
    assert pause is not None
    assert (pause.by, pause.reason) == ("drain", "drained")


# -- leaving and claiming


async def test_what_a_claim_in_flight_takes_is_released_by_the_leave_that_waits_for_it(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand, leaver = place.hand("w1"), other.hand("w1")
    await hand.beat()
    with place.holding(NEW_LEASES):
        claim = start(hand.ask())
        await place.until_waiting(1)
        leave = start(leaver.leave())
        await place.until_waiting(2)
    assert len((await claim).jobs) == 1
    await leave
    assert await place.state(id) is State.ready
    assert place.ask("SELECT (SELECT count(*) FROM lp.session), (SELECT count(*) FROM lp.lease)") == [(0, 0)]


async def test_a_claim_gets_nothing_for_a_session_that_is_leaving(place: Place) -> None:
    id, other = await place.add(), await place.another()
    hand, leaver = place.hand("w1"), other.hand("w1")
    job = await hand.take()
    await place.add()
    with place.holding(LEASES):
        leave = start(leaver.leave())
        await place.until_waiting(1)
        claim = start(hand.ask(5))
        await place.until_waiting(2)
    await leave
    assert (await claim).jobs == ()
    assert job.id == id
    assert await place.state(id) is State.ready
    assert place.ask("SELECT count(*) FROM lp.running") == [(0,)]


async def test_leaving_waits_for_a_settlement_that_is_under_way(place: Place) -> None:
    await place.add()
    other = await place.another()
    hand, leaver = place.hand("w1"), other.hand("w1")
    job = await hand.take()
    with place.holding(LEASES):
        settling = start(hand.succeed(job))
        await place.until_waiting(1)
        leave = start(leaver.leave())
        await place.until_waiting(2)
    assert [answer.answer for answer in await settling] == ["done"]
    await leave
    assert place.ask("SELECT count(*) FROM lp.session") == [(0,)]


async def test_leaving_waits_for_no_open_transaction_of_a_handler(place: Place) -> None:
    await place.add_many(3)
    watcher, hand = place.hand("watcher"), place.hand("w1")
    await place.sweep(20_000, watcher)
    one, two, three = await hand.claim(3)
    with place.holding() as line:
        line.execute(place.sql("SELECT lp.settle_on_1(%s, %s, NULL, NULL)"), (two.id, two.token))
        await soon(hand.leave())
        assert await place.states([one.id, two.id, three.id]) == [State.ready, State.running, State.ready]
        assert (await hand.ask()).jobs == ()  # it is not alive
        line.commit()
    await place.sweep(1_000, watcher)
    assert await place.state(two.id) is State.succeeded
    assert place.ask("SELECT id FROM lp.session") == [("watcher",)]
