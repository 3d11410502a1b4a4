"""Workers are killed while jobs die: each death is told to its hook, and each hook hears it."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import msgspec
import pytest

from limpet.core.endings.hook import KIND, QUEUE, Ending
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import LIVE, State
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.chaos import hook_jobs
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field, WorkerProcess, kill
from tests.size import FULL

DEATHS = 500 if FULL else 60
FRAGILE = DEATHS // 5
KILLS = 20 if FULL else 3
WORKERS = 2


@on_every_engine
@pytest.mark.timeout(900)
async def test_of_all_deaths_through_kill_9_none_is_missing(field: Field) -> None:
    workers = [hire(field) for _ in range(WORKERS)]
    await field.until("the hook is published", partial(is_published, field))
    dying = await field.put("dies", {"ms": 20}, DEATHS, hook_jobs.app)
    ids = dying + await field.put("fragile", {"ms": 100}, FRAGILE, hook_jobs.app)
    for number in range(KILLS):
        # By what was done: on a slow machine, too, there are deaths left for every kill.
        await field.until("jobs die between two kills", partial(died, field, DEATHS * number // (KILLS + 1)))
        await asyncio.sleep(field.rng.uniform(0, 0.1))
        place = field.rng.randrange(WORKERS)
        tree = workers[place].tree()
        victims = tree if number % 2 else [field.rng.choice(tree)]
        for pid in victims:
            kill(pid)
        if workers[place].pid in victims:
            await workers[place].ended()
            workers[place] = hire(field)
    await field.until("all has ended", partial(all_ended, field, len(ids)), 150)
    views = await field.views(ids)
    dead = [id_text(view.id) for view in views if view.state is State.dead]
    assert len(views) == len(ids), "lost"
    assert {*map(id_text, dying)} <= {*dead}
    jobs = [job for job in await Bench(field.store, Clock()).everything() if job.lane.queue == QUEUE]
    told = Counter(msgspec.json.decode(job.args, type=dict[str, Ending])["ending"].job for job in jobs)
    assert told == Counter(dead), "a death has no hook, or two"
    assert {job.state for job in jobs} == {State.succeeded}
    assert {line[1] for line in field.trace("heard")} == {*dead}, "a hook did not hear"


async def is_published(field: Field) -> bool:
    return len(await field.store.controls(KIND)) == 1


def died(field: Field, count: int) -> bool:
    return len(field.trace("end")) > count


async def all_ended(field: Field, count: int) -> bool:
    """No job waits or runs: the hooks of the last deaths have run too, since they came with them."""
    counts = await field.store.count()
    return counts.enqueued >= count and not any(counts.total(state) for state in LIVE)


def hire(field: Field) -> WorkerProcess:
    return field.start(app="tests.chaos.hook_jobs:app", concurrency=4, processes=2)
