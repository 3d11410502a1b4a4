"""Real processes, real signals: whatever is killed or frozen, no job is lost and none pays for its neighbours."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from tests.chaos.conftest import on, on_every_engine
from tests.chaos.field import Field, WorkerProcess, alive, kill, starts_per_job, thaw


@on("sqlite", "redis", why="test_kills.py kills workers on PostgreSQL")
async def test_kill_9_of_random_children_and_supervisors_loses_nothing(field: Field) -> None:
    ids = await field.put("short", {"ms": 40}, 400) + await field.put("in_thread", {"ms": 40}, 100)
    workers = [field.start(processes=2, concurrency=2) for _ in range(2)]
    for number in range(9):
        # By what was done, not by time alone: on a slow machine, too, there is work left for every kill.
        await field.until("jobs run between two kills", partial(worked_on, field, 5 + 40 * number))
        await asyncio.sleep(field.rng.uniform(0, 0.2))
        place = field.rng.randrange(2)
        victim = field.rng.choice(workers[place].tree())
        kill(victim)
        if victim == workers[place].pid:
            await workers[place].ended()
            workers[place] = field.start(processes=2, concurrency=2)
    counts = await field.finished(500)
    views = await field.views(ids)
    assert {view.state for view in views} == {State.succeeded}
    assert {view.attempt for view in views} == {1}  # a crash of the process is no attempt of the job
    assert counts.succeeded == 500
    assert len(starts_per_job(field.trace("end"))) == 500
    for worker in workers:
        await field.until("it has started", partial(field.lives, worker))
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    await field.until("no child outlives its supervisor", lambda: sessions(field, 0))


@on("sqlite", "redis", why="two engines say whether the supervisor does it")
async def test_the_supervisor_hands_back_at_once_what_its_dead_child_held(field: Field) -> None:
    """Long before the lease of two minutes would have run out."""
    ids = await field.put("waits", {}, 4)
    worker = field.start(ttl_ms=120_000, beat_ms=5_000, concurrency=2)
    await field.until("two jobs run", lambda: len(field.trace("start")) == 2)
    for child in worker.children():
        kill(child)
    field.let_go()
    await field.finished(4)
    views = await field.views(ids)
    assert sorted(view.lost for view in views) == [0, 0, 1, 1]
    assert {view.attempt for view in views} == {1}


@on_every_engine
async def test_a_frozen_worker_thawed_late_is_refused(field: Field) -> None:
    workers = [field.start(ttl_ms=2_000), field.start(ttl_ms=2_000)]
    await field.until("both workers live", lambda: sessions(field, 2))
    (id,) = await field.put("waits", {})
    await field.until("the job runs", lambda: len(field.trace("start")) == 1)
    runs_at = int(field.trace("start")[0][4])
    (frozen,) = (worker for worker in workers if runs_at in worker.children())
    stopped = await field.freeze(frozen)
    field.let_go()  # the other one, which gets the job; and this one, when it thaws
    await field.finished(1)
    before = (await field.views([id]))[0]
    thaw(stopped)
    await field.until("the thawed worker lives again", lambda: sessions(field, 2))
    frozen.signal(signal.SIGTERM)
    assert await frozen.ended() == 0
    after = (await field.views([id]))[0]
    assert (after.state, after.finished_at_ms, after.token) == (State.succeeded, before.finished_at_ms, before.token)
    assert (await field.store.count()).succeeded == 1
    first, *_, last = field.trace("start")
    assert int(first[3]) < int(last[3])  # the fencing token has grown


def worked_on(field: Field, seen: int) -> bool:
    """True when more jobs have ended than before."""
    return len(field.trace("end")) > seen


async def sessions(field: Field, count: int) -> bool:
    """True when so many workers are alive, by the store's word."""
    names = [view.session for view in await field.store.sessions()]
    return len([name for name in names if name != "observer"]) == count


async def test_a_poison_job_dies_alone(field: Field) -> None:
    neighbours = await field.put("short", {"ms": 150}, 12)
    (poison,) = await field.put("poison", {})
    more = await field.put("short", {"ms": 150}, 12)
    field.start(concurrency=8)
    counts = await field.finished(25)
    dead = (await field.views([poison]))[0]
    assert (dead.state, dead.cause) == (State.dead, "poison")
    assert counts.total(State.succeeded) == 24
    assert {view.attempt for view in await field.views(neighbours + more)} == {1}


async def test_jobs_that_end_their_process_over_and_over_never_end_the_command(field: Field) -> None:
    """Five children in a row that had started no job would."""
    ids = await field.put("poison", {}, 3)
    worker = field.start(concurrency=1)
    await field.finished(3)
    assert {view.cause for view in await field.views(ids)} == {"poison"}
    assert len({line[4] for line in field.trace("start")}) > 5, "each has ended two children and a process of its own"
    assert worker.process.poll() is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0


async def test_ends_that_a_child_knows_and_cannot_write_are_written_by_its_supervisor(field: Field) -> None:
    (id,) = await field.put("mutes", {})
    field.start()
    counts = await field.finished(1)
    (view,) = await field.views([id])
    assert (view.state, view.attempt) == (State.succeeded, 1)
    assert len(field.trace("start")) == 1
    assert counts.lost == 0


@on("sqlite", "redis", why="what a deployment hands back is a settlement like any other")
async def test_a_rolling_deployment_spends_no_attempts(field: Field) -> None:
    quick = await field.put("short", {"ms": 60}, 150)
    slow = await field.put("short", {"ms": 900}, 4)
    start = partial(field.start, processes=2, grace_ms=200, ttl_ms=15_000)
    worker = start()
    for _ in range(3):
        seen = len(field.trace("end"))
        await field.until("the new release works", partial(worked_on, field, min(seen, 153)))
        await field.until("it has started, though all is done", partial(field.lives, worker))
        newer = start()
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
        worker = newer
    counts = await field.finished(154)
    views = await field.views(quick + slow)
    assert {view.state for view in views} == {State.succeeded}
    assert {view.attempt for view in views} == {1}
    assert (counts.lost, counts.stale) == (0, 0)
    assert {view.lost for view in views} == {0}


async def test_a_worker_whose_loop_is_blocked_keeps_its_lease(field: Field) -> None:
    await field.put("blocking", {"ms": 6_000})
    field.start(ttl_ms=4_000)
    await field.until("the loop is blocked", lambda: len(field.trace("start")) == 1)
    field.start()
    counts = await field.finished(1)
    assert len(field.trace("start")) == 1
    assert (counts.lost, counts.stale) == (0, 0)


async def test_the_supervisor_beats_for_a_child_that_cannot(field: Field) -> None:
    """As when an extension holds the interpreter: here the child alone is stopped for one and a half leases.

    After two it would be killed as stopped, so half a lease is what a slow machine may add.
    """
    await field.put("short", {"ms": 200})
    worker = field.start(ttl_ms=6_000)
    await field.until("the job runs", lambda: len(field.trace("start")) == 1)
    field.start()
    (child,) = worker.children()
    kill(child, signal.SIGSTOP)
    await asyncio.sleep(9)
    kill(child, signal.SIGCONT)
    counts = await field.finished(1)
    assert len(field.trace("start")) == 1
    assert (counts.lost, counts.stale) == (0, 0)


async def test_children_of_a_killed_supervisor_finish_and_end(field: Field) -> None:
    (id,) = await field.put("waits", {})
    worker = field.start(ttl_ms=15_000)
    await field.until("the job runs", lambda: len(field.trace("start")) == 1)
    children = worker.children()
    worker.signal(signal.SIGKILL)
    await worker.ended()
    field.let_go()
    await field.until("the children end", lambda: not any(alive(pid) for pid in children))
    view = (await field.views([id]))[0]
    assert (view.state, view.attempt) == (State.succeeded, 1)
    assert await field.store.sessions() == []


async def test_a_second_signal_does_not_wait_for_the_grace(field: Field) -> None:
    (id,) = await field.put("short", {"ms": 60_000})
    worker: WorkerProcess = field.start(grace_ms=60_000)
    await field.until("the job runs", lambda: len(field.trace("start")) == 1)
    worker.signal(signal.SIGTERM)
    await asyncio.sleep(2)  # it has heard of the first; two that come at once are one
    assert worker.process.poll() is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    view = (await field.views([id]))[0]
    assert (view.state, view.attempt) == (State.ready, 0), id_text(id)


async def test_a_child_that_has_done_enough_is_replaced_without_loss(field: Field) -> None:
    ids = await field.put("short", {"ms": 5}, 60)
    worker = field.start(max_jobs=15, ttl_ms=15_000)
    counts = await field.finished(60)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert len({line[4] for line in field.trace("start")}) >= 3  # processes that ran them
    assert (counts.lost, counts.stale) == (0, 0)
    assert {view.attempt for view in await field.views(ids)} == {1}


async def test_a_worker_that_cannot_start_says_so_and_ends(field: Field) -> None:
    worker = field.start(app="tests.chaos.nowhere:app")
    assert await worker.ended() == 1
