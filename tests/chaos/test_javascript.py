"""Workers in JavaScript, killed and frozen at random, and their server too: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Held
from limpet.core.jobs.state import State
from limpet.ops import Operator
from tests.chaos.conftest import on_every_engine
from tests.chaos.field import Field
from tests.servers.programs import Programs

JOBS = 60
BLOWS = 6
LEASE_S = 1.0


@pytest.fixture
def programs(field: Field, tmp_path: Path) -> Iterator[Programs]:
    with closing(Programs(field.url, tmp_path)) as programs:
        yield programs


def jobs_of(field: Field) -> list[Job]:
    """Scans of some pages, each worth a checkpoint."""
    ids = IdMaker().make_many(JOBS, time.time_ns() // 1_000_000)
    return [
        Job(id, Lane("books", "book.scan"), Policy(), b'{"pages":%d,"ms":30}' % field.rng.randint(2, 10)) for id in ids
    ]


async def leases_of(field: Field, worker: subprocess.Popen[bytes]) -> list[Held]:
    """What a worker holds."""
    mine = f"agent:js-{worker.pid}:"
    sessions = [view.session for view in await field.store.sessions() if view.session.startswith(mine)]
    return [held for session in sessions for held in await field.store.held(session)]


async def freeze(field: Field, worker: subprocess.Popen[bytes]) -> list[Held]:
    """Stop a worker in its tracks while it holds jobs: these."""

    async def holds() -> bool:
        return bool(await leases_of(field, worker))

    while True:
        await field.until("a worker holds a job", holds)
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.1)  # what it had sent is answered by then
        if held := await leases_of(field, worker):
            return held
        worker.send_signal(signal.SIGCONT)


async def thaw(field: Field, worker: subprocess.Popen[bytes], held: list[Held]) -> None:
    """Let it go on when its jobs have been taken from it."""
    tokens = {one.id: one.token for one in held}

    async def are_lost() -> bool:
        views = await field.views(list(tokens))
        return not any(view.state is State.running and view.token == tokens[view.id] for view in views)

    await field.until("the jobs of a frozen worker are taken back", are_lost)
    worker.send_signal(signal.SIGCONT)


async def ended(field: Field, count: int) -> bool:
    counts = await field.store.count()
    return counts.total(State.succeeded) + counts.succeeded >= count


@on_every_engine
async def test_workers_in_javascript_and_their_server_may_die_at_any_time(field: Field, programs: Programs) -> None:
    await field.store.enqueue(jobs := jobs_of(field))
    server = programs.serve()
    workers = [programs.worker(LEASE_S) for _ in range(3)]
    thaws: list[asyncio.Task[None]] = []
    for blow in range(BLOWS):
        await field.until("further jobs end", partial(ended, field, blow * JOBS // (BLOWS + 2)))
        await asyncio.sleep(field.rng.uniform(0, 0.2))
        place = field.rng.randrange(3)
        if blow == BLOWS // 2:
            server.kill()
            server.wait()
            server = programs.serve()
        elif blow % 3 == 2:
            held = await freeze(field, workers[place])
            thaws.append(asyncio.create_task(thaw(field, workers[place], held)))
            workers[place] = programs.worker(LEASE_S)
        else:
            workers[place].kill()
            workers[place] = programs.worker(LEASE_S)
    await field.finished(JOBS)
    await asyncio.gather(*thaws)
    await field.until("a worker that was frozen is refused", lambda: any("stale" in line for line in programs.said()))
    views = await field.views([job.id for job in jobs])
    assert [view.state for view in views] == [State.succeeded] * JOBS
    await is_ended_once(field, programs, {id_text(view.id) for view in views})
    assert sum(view.lost for view in views) > 0, "no blow has hit a worker that held a job"


async def is_ended_once(field: Field, programs: Programs, ids: set[str]) -> None:
    """Each job has one end, under the newest token that it was claimed with, and no worker was told of another."""
    newest: dict[str, int] = {}
    ends: list[tuple[str, int]] = []
    for line in await Operator(field.store, "ada").audit(limit=10_000):
        if line.kind == "agent.claim":
            newest[str(line.job)] = int(str(line.data["token"]))
        elif line.kind == "agent.complete":
            ends.append((str(line.job), int(str(line.data["token"]))))
    assert len({job for job, _ in ends}) == len(ends)
    assert len(ends) >= JOBS - 4, "a server that is killed loses the lines of what it was doing, and no more"
    # A claim's line may be lost in the same way, and then the end's token is larger than any.
    assert all(token >= newest.get(job, 0) for job, token in ends)
    said = [line.split() for line in programs.said()]
    told = [(words[0], int(words[1])) for words in said if words[2:] == ["succeeded"]]
    assert set(told) <= set(ends)
    assert len(set(told)) == len(told)
    assert {job for job, _ in ends} <= ids
