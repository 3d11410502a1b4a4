"""The count that peers are measured by: 2,000 jobs, 4 workers, a SIGKILL every second for 20 s."""

from __future__ import annotations

import asyncio
import time

import pytest

from limpet.core.jobs.state import State
from tests.chaos.conftest import on
from tests.chaos.field import Field, WorkerProcess, kill, starts_per_job

JOBS = 2_000
WORKERS = 4
KILLS = 20
LEASE_MS = 5_000
STUCK_S = 60  # far beyond lease and sweep: a busy machine takes seconds to start a worker that takes over


@on("postgres", why="test_chaos.py kills workers on the other two")
@pytest.mark.timeout(900)
async def test_20_kills_in_20_s_over_2000_jobs_lose_nothing_and_leave_nothing_stuck(field: Field) -> None:
    """Every other kill takes a whole worker, as when its machine dies; the rest take one process of it."""
    ids = await field.put("short", {"ms": 120}, JOBS)
    workers = [hire(field) for _ in range(WORKERS)]
    await field.until("the first jobs ran", lambda: len(field.trace("end")) > WORKERS)
    for number in range(KILLS):
        until_s = time.monotonic() + 1
        place = field.rng.randrange(WORKERS)
        tree = workers[place].tree()
        victims = tree if number % 2 else [field.rng.choice(tree)]
        for pid in victims:
            kill(pid)
        if workers[place].pid in victims:
            await workers[place].ended()
            workers[place] = hire(field)
        await asyncio.sleep(max(0.0, until_s - time.monotonic()))
    held = [view.id for view in await field.views(ids) if view.state is State.running]
    # Whatever held them, alive or dead: none is stuck. How soon they run again is in the contract and the bench.
    await field.until("what ran at the last kill has ended", lambda: all_ended(field, held), STUCK_S)
    counts = await field.finished(JOBS)
    views = await field.views(ids)
    assert len(views) == JOBS, "lost"
    assert {view.state for view in views} == {State.succeeded}, "stuck or dead"
    assert counts.succeeded == counts.enqueued == JOBS
    assert {view.attempt for view in views} == {1}  # a crash of the process is no attempt of the job
    assert len(starts_per_job(field.trace("end"))) == JOBS
    assert counts.lost > 0, "no kill has met a running job"


async def all_ended(field: Field, ids: list[bytes]) -> bool:
    return {view.state for view in await field.views(ids)} <= {State.succeeded}


def hire(field: Field) -> WorkerProcess:
    return field.start(ttl_ms=LEASE_MS, beat_ms=1_000, sweep_ms=500, concurrency=4)
