"""A breaker opens over a fleet of real workers: what starts after that had been claimed before, on every engine."""

from __future__ import annotations

import time

import pytest

from limpet.core.gate import is_shut
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.tasks.task import build_job
from tests.chaos import stopping_jobs
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field
from tests.size import in_matrix

WORKERS = 3
FAILURES = 5
GATE = "breaker:provider"


@on_every_engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("slots", [10, *in_matrix("the contract has all three in one process", 1, 100)])
async def test_what_starts_after_a_breaker_opened_was_claimed_before(field: Field, slots: int) -> None:
    for _ in range(WORKERS):
        field.start(app="tests.chaos.stopping_jobs:app", concurrency=slots, ttl_ms=15_000, beat_ms=300)
    await field.until("all are there", lambda: _staffed(field))
    spec = stopping_jobs.app.parts().tasks["call"]
    ids = IdMaker().make_many(WORKERS * slots + 200, time.time_ns() // 1_000_000)
    jobs = [build_job(spec, {}, id=id) for id in ids]
    await field.store.enqueue([job for job, _ in jobs], jobs[0][1])

    await field.until("the breaker is open", lambda: _is_open(field))
    running = {id_text(one.id) for view in await field.store.sessions() for one in await field.store.held(view.session)}
    started_before = len(field.trace("calls"))
    await field.until("nothing runs", lambda: _is_quiet(field))
    started_after = [line[1] for line in field.trace("calls")[started_before:]]
    assert set(started_after) <= running
    assert len(field.trace("calls")) <= FAILURES + WORKERS * slots


async def _staffed(field: Field) -> bool:
    return len(await field.store.sessions()) == WORKERS


async def _is_open(field: Field) -> bool:
    gates = await field.store.gates(keys=[GATE])
    return any(is_shut(gate, 0) for gate in gates)


async def _is_quiet(field: Field) -> bool:
    return not [one for view in await field.store.sessions() for one in await field.store.held(view.session)]
