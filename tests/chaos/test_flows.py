"""Workers are killed while flows run through them: what a node waits for has ended before it begins, none is lost."""

from __future__ import annotations

import asyncio
import time

import pytest

from limpet import Chain, NodeHandle, State, chain, chord, group
from limpet.records import FlowDetail
from tests.chaos.conftest import on
from tests.chaos.field import Field, WorkerProcess, kill
from tests.chaos.flowing import app, join, part

FLOWS = 6
WIDE = 30
WORKERS = 3
KILLS = 12
EVERY_S = 0.5


@on("postgres", why="claims and settlements race in that server; crash points and walks cover the others")
@pytest.mark.timeout(900)
async def test_flows_run_to_their_ends_through_kills_of_their_workers(field: Field) -> None:
    """Two chords in a chain with a group between them; every other kill takes a whole worker."""
    app.rebind(field.url)
    try:
        ends = [await whole(start).enqueue() for start in range(FLOWS)]
        workers = [hire(field) for _ in range(WORKERS)]
        await field.until("the first jobs run", lambda: bool(field.trace("start")))
        at_work = int(field.trace("start")[0][4])
        for number in range(KILLS):
            await field.until("a kill may meet a running job", lambda: anybody_runs(field))
            until_s = time.monotonic() + EVERY_S
            place = field.rng.randrange(WORKERS)
            if number == 0:  # this one meets a running job for sure
                place = next(n for n, worker in enumerate(workers) if at_work in worker.children())
            tree = workers[place].tree()
            victims = [field.rng.choice(tree)] if number % 2 else tree
            for pid in victims:
                kill(pid)
            if workers[place].pid in victims:
                await workers[place].ended()
                workers[place] = hire(field)
            field.let_go()
            await asyncio.sleep(max(0.0, until_s - time.monotonic()))
        for start, end in enumerate(ends):
            assert await end.result(timeout=60) == expected(start)
            status = await end.flow.wait(timeout=60)
            assert (status.state, status.counts) == ("succeeded", {State.succeeded: 2 * WIDE + 3})
            check_order(field, status)
        assert (await field.store.count()).lost > 0, "the first kill has met a running job"
    finally:
        await app.close()


async def anybody_runs(field: Field) -> bool:
    """Whether there is somebody to kill; where all is done already, there is nobody to wait for."""
    counts = await field.store.count()
    return counts.total(State.running) > 0 or counts.total(State.succeeded) == counts.enqueued


def whole(start: int) -> Chain[NodeHandle[int]]:
    """start → WIDE parts of it → their sum → WIDE parts of that → their sum."""
    return chain(
        part.job(start),
        chord([part.job(n) for n in range(WIDE)], join.job()),
        group([part.job(n) for n in range(WIDE)]),
        join.job(),
    )


def expected(start: int) -> int:
    numbers = sum(range(WIDE))
    return WIDE * (WIDE * start + numbers) + numbers


def check_order(field: Field, status: FlowDetail) -> None:
    """No node began before all that it waits for had ended."""
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for at, (word, id, *_) in enumerate(field.trace()):
        if word == "start":
            began.setdefault(id, at)
        else:
            ended.setdefault(id, at)
    ids = {node.node: node.id for node in status.nodes}
    for node in status.nodes:
        for parent in node.after:
            assert ended[ids[parent]] < began[node.id], f"{node.node} began before {parent} had ended"


def hire(field: Field) -> WorkerProcess:
    return field.start(app="tests.chaos.flowing:app")
