"""Processes that run an operation are killed at random: the next one continues, and each job is changed once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from limpet.core.endings.transition import Bury, Failure, Succeed
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.core.operations.operation import LEASE_MS
from limpet.ops import Operator
from limpet.ops.operations import Operations
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import HERE, Field
from tests.size import FULL, in_matrix

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

JOBS = 600
KILLS = 5 if FULL else 3
PER_SECOND = 1_000  # so that no process comes to the end
SERVES = Serves()
FAILURE = Failure("permanent", "ValueError", "bad address", cause="c")


async def finish(field: Field, *, dies: bool) -> list[bytes]:
    """Jobs that are dead or have succeeded."""
    ids = await field.put("short", {"ms": 0}, JOBS)
    left = JOBS
    while left:
        await field.store.beat(Beat("w1", 60_000, SERVES))
        claim = await field.store.claim(ClaimRequest("w1", SERVES, 200, 200, time.monotonic_ns()))
        ends = [Bury(one.id, one.token, FAILURE) if dies else Succeed(one.id, one.token) for one in claim.jobs]
        await field.store.settle("w1", time.monotonic_ns(), ends)
        left -= len(ends)
    return ids


@on_every_engine
@pytest.mark.parametrize("verb", ["retry", *in_matrix("the steps are the same for each verb", "rerun")])
async def test_an_operation_whose_processes_are_killed_changes_each_job_once(field: Field, verb: str) -> None:
    ids = await finish(field, dies=verb == "retry")
    state, ahead_ms = "dead" if verb == "retry" else "succeeded", 0
    operations = Operations(field.store, "ada", lambda: time.time_ns() // 1_000_000 + ahead_ms)
    await asyncio.sleep(0.002)  # it acts on what has ended before
    started = await operations.start(verb, f"state:{state}", per_second=PER_SECOND)
    for _ in range(KILLS):
        seen = (await operations.get(started.id)).done
        process = field.run(str(HERE / "start_operation.py"), started.id, str(ahead_ms))

        async def is_on(seen: int = seen) -> bool:
            return (await operations.get(started.id)).done > seen

        await field.until("a process has taken the operation over", is_on)
        await asyncio.sleep(field.rng.uniform(0, 0.05))
        process.signal(9)
        await process.ended()
        ahead_ms += LEASE_MS
    ended = await operations.run(started.id)

    word = {"retry": "retried", "rerun": "rerun"}[verb]
    assert (ended.state, ended.matched, ended.done, ended.answers) == ("done", JOBS, JOBS, {word: JOBS})
    audit = await Operator(field.store, "ada").audit(after=0, limit=10_000)
    assert Counter(entry.job for entry in audit if entry.kind == f"job.{verb}") == {id_text(id): 1 for id in ids}
    counts = await field.store.count()
    assert counts.total(State.ready) == JOBS
    assert counts.enqueued == (JOBS if verb == "retry" else 2 * JOBS)
