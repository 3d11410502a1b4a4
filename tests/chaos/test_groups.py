"""Processes of jobs, and what these start, end before anybody else gets the job."""

from __future__ import annotations

import signal
from functools import partial

import psutil
import pytest

from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from tests.chaos.conftest import on
from tests.chaos.field import Field, kill
from tests.chaos.test_chaos import sessions
from tests.chaos.test_limits import put


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def forked(field: Field) -> list[int]:
    """The pids of a job and of the helper that it has started."""
    await field.until("the job has started its helper", lambda: len(field.trace()) == 2)
    return [int(line[4]) for line in field.trace()]


@on("sqlite", why="it happens between processes of one machine, whatever the engine")
@pytest.mark.parametrize("frozen", [False, True])
async def test_nothing_of_a_process_job_survives_the_kill_of_its_worker(field: Field, frozen: bool) -> None:
    """Frozen, they cannot notice by themselves that their worker is dead."""
    (id,) = await field.put("forks", {})
    worker = field.start(ttl_ms=120_000, beat_ms=5_000, job_processes=1)
    inside = await forked(field)
    if frozen:
        for pid in inside:
            kill(pid, signal.SIGSTOP)
    for child in worker.children():
        kill(child)
    await field.finished(1)
    assert (await field.views([id]))[0].state is State.succeeded
    assert not field.trace("beside")
    assert not any(map(runs, inside))


@on("sqlite", "redis", why="what a supervisor settles for its child is a settlement like any other")
async def test_a_thread_that_was_given_up_keeps_its_slot_until_its_process_is_gone(field: Field) -> None:
    for _ in range(2):  # the other one would have it at once
        field.start(app="tests.chaos.limit_jobs:app", ttl_ms=15_000, beat_ms=1_000)
    await field.until("both workers live", partial(sessions, field, 2))
    (id,) = await put(field, "stubborn", [{}])
    await field.finished(1)
    (view,) = await field.views([id])
    assert (view.state, view.attempt, view.lost) == (State.succeeded, 2, 0)
    assert [one.kind for one in await attempts_of(field.store, id)][:1] == ["timeout"]
    assert len(field.trace("enters")) == 2
    assert not field.trace("beside")


@on("sqlite", why="it happens between processes of one machine, whatever the engine")
async def test_a_thread_that_outlives_the_grace_keeps_its_slot_until_its_process_is_gone(field: Field) -> None:
    workers = [
        field.start(app="tests.chaos.limit_jobs:app", ttl_ms=15_000, beat_ms=1_000, grace_ms=100, cleanup_ms=1_000)
        for _ in range(2)
    ]
    await field.until("both workers live", partial(sessions, field, 2))
    (id,) = await put(field, "deaf", [{}])
    await field.until("somebody is inside", lambda: bool(field.trace("enters")))
    holder = next(worker for worker in workers if int(field.trace("enters")[0][3]) in worker.children())
    holder.signal(signal.SIGTERM)
    assert await holder.ended() == 0
    await field.finished(1)
    (view,) = await field.views([id])
    assert (view.state, view.attempt, view.lost) == (State.succeeded, 1, 0)
    assert not field.trace("beside")


@on("sqlite", why="it happens between processes of one machine, whatever the engine")
async def test_nothing_of_a_process_job_survives_the_kill_of_everybody(field: Field) -> None:
    await field.put("forks", {})
    worker = field.start(job_processes=1)
    inside = await forked(field)
    for pid in worker.tree():
        kill(pid)
    await field.until("the job has ended with its helper", lambda: not any(map(runs, inside)))
