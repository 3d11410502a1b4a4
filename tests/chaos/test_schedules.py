"""Schedules with real workers and real kills: every second has its run, once, whoever dies."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import Query, Term
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.schedule import KIND, Schedule, read_schedule, source_of
from limpet.ops import Schedules
from limpet.stores.asking import find_all
from limpet.stores.base import MARK
from tests.chaos.conftest import on
from tests.chaos.field import Field, WorkerProcess, kill, thaw

NAME = "secondly"
WORKERS = 3
KILLS = 10


@on("postgres", why="tests/engines/test_ticks.py has the ticks of all engines")
@pytest.mark.timeout(900)
async def test_every_second_fires_once_while_workers_are_killed_and_frozen(field: Field) -> None:
    workers = [hire(field) for _ in range(WORKERS)]
    await field.until("the first tick ran", lambda: bool(field.trace("ran")), 60)
    for number in range(KILLS):
        until_s = time.monotonic() + 1
        place = field.rng.randrange(WORKERS)
        if number % 4 == 3:
            frozen = await field.freeze(workers[place])  # it wakes with a plan that is out of date
            await asyncio.sleep(2)
            thaw(frozen)
        else:
            await murder(workers[place])
            workers[place] = hire(field)
        await asyncio.sleep(max(0.0, until_s - time.monotonic()))
    for worker in workers:
        await murder(worker)
    await asyncio.sleep(3)  # nobody is there
    hire(field)
    end_ms = await field.store.now()
    await field.until("what was missed is caught up", lambda: is_decided(field, end_ms), 60)
    await Schedules(field.store, "test", handle=lambda answer, task: answer).pause(NAME)
    await field.until("every run is finished", lambda: is_finished(field), 60)

    ticks = list(range(await since_ms(field) // 1000 * 1000 + 1000, end_ms + 1, 1000))
    assert len(ticks) > KILLS
    fired = {view.id: view for view in await find_all(field.store, Query(terms=(Term("task", NAME),), limit=500))}
    missing = [tick for tick in ticks if tick_job(NAME, tick) not in fired]
    assert missing == []
    counts = await field.store.count()
    assert counts.enqueued == counts.succeeded == len(fired)
    ran = Counter(int(line[1]) for line in field.trace("ran"))
    for tick in ticks:
        view = fired[tick_job(NAME, tick)]
        assert (view.state, view.attempt) == (State.succeeded, 1)
        assert 1 <= ran[tick] <= 1 + view.lost, "a tick ran again without a crash"
        assert view.enqueued_at_ms >= view.due_at_ms == tick, "early"


def hire(field: Field) -> WorkerProcess:
    return field.start(app="tests.chaos.schedule_jobs:app")


async def murder(worker: WorkerProcess) -> None:
    for pid in worker.tree():
        kill(pid)
    await worker.ended()


async def since_ms(field: Field) -> int:
    (control,) = await field.store.controls(KIND)
    schedule = read_schedule(control)
    assert isinstance(schedule, Schedule)
    return schedule.since_at_ms


async def is_decided(field: Field, until_ms: int) -> bool:
    """True when the mark has passed the last tick up to an instant."""
    marks = {control.name: int(control.value) for control in await field.store.controls(MARK)}
    return marks.get(source_of(NAME), 0) >= until_ms // 1000 * 1000


async def is_finished(field: Field) -> bool:
    counts = await field.store.count()
    return not sum(counts.total(state) for state in LIVE)
