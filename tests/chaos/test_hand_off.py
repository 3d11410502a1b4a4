"""Lone jobs go from hand to hand while workers and callers are killed, frozen and ended: each runs, none is stuck."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from limpet.core.jobs.ids import IdMaker, id_bytes
from limpet.core.jobs.state import State
from tests.chaos.conftest import on
from tests.chaos.field import ROOT, Field, WorkerProcess, kill, starts_per_job, thaw

JOBS = 400
ROUNDS = 6
PLACES = (4, 1)
BETWEEN_S = 0.02  # most jobs find that a worker sleeps

# A caller that stores one job after the other, each in a call of its own, until it is killed.
CALLER = f"""
BETWEEN_S = {BETWEEN_S}
import asyncio, os, sys
from limpet.core.tasks.task import build_job
from limpet.stores.open import open_store
from tests.chaos import chaos_jobs

async def main():
    store, spec = open_store(os.environ["CHAOS_URL"]), chaos_jobs.app.parts().tasks["short"]
    for id in sys.argv[1:]:
        (answer,) = await store.enqueue([build_job(spec, {{"ms": 0}}, id=bytes.fromhex(id))[0]])
        print(id, answer.state, flush=True)
        await asyncio.sleep(BETWEEN_S)

asyncio.run(main())
"""
HANDS_OFF = ("sqlite", "redis")


@on(*HANDS_OFF, why="PostgreSQL lets a lone job become ready")
@pytest.mark.timeout(360)  # workers start slowly on a busy machine
async def test_lone_jobs_survive_whatever_is_killed_on_their_way(field: Field) -> None:
    workers = [field.start(concurrency=concurrency) for concurrency in PLACES]
    await field.until("both work", lambda: _all_live(field, workers))
    made, answered, handed = IdMaker(), [], 0
    for number in range(ROUNDS):
        ids = made.make_many(JOBS // ROUNDS, time.time_ns() // 1_000_000)
        caller = _call(field, ids)
        await asyncio.sleep(0.5 + field.rng.random())
        place = number % len(workers)
        match number % 3:
            case 0:
                kill(field.rng.choice(workers[place].children() or [workers[place].pid]))
            case 1:
                stopped = await field.freeze(workers[place])
                await asyncio.sleep(2.0)  # beyond its lease
                thaw(stopped)
            case 2:
                for pid in workers[place].tree():
                    kill(pid)
                await workers[place].ended()
                workers[place] = field.start(concurrency=PLACES[place])
        if number % 2:
            kill(caller.pid)
        said, _ = await asyncio.to_thread(caller.communicate)
        lines = [line.split() for line in said.splitlines() if len(line.split()) == 2]
        answered += [bytes.fromhex(id) for id, _ in lines]
        handed += sum(state == State.running for _, state in lines)
    # What is stored, whether its caller heard so or not.
    counts = await field.store.count()
    counts = await field.finished(counts.enqueued)
    views = await field.views(answered)
    assert len(views) == len(answered), "lost"
    assert {view.state for view in views} == {State.succeeded}, "stuck or dead"
    assert counts.succeeded == counts.enqueued
    assert {view.attempt for view in views} == {1}  # no crash is an attempt of the job
    ran = starts_per_job(field.trace("end"))
    assert {id_bytes(id) for id in ran} >= set(answered)
    assert handed, "no job was handed off"


def _call(field: Field, ids: list[bytes]) -> subprocess.Popen[str]:
    """Start a caller, which says of each job that it was stored and in which state."""
    command = [sys.executable, "-c", CALLER, *(id.hex() for id in ids)]
    return subprocess.Popen(command, env=field.env(), cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def _all_live(field: Field, workers: list[WorkerProcess]) -> bool:
    return all([await field.lives(worker) for worker in workers])
