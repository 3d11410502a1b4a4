"""A handle watches its job on every engine: the job at once, each change, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from limpet import JobHandle, JobNotFound, JobRecord, Limpet, ResultTimeout, State, current_job
from tests.flows.conftest import ENGINES, app_on

UNKNOWN = "019a0000-0000-7000-8000-000000000000"


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Limpet]:
    app = app_on(request.param, tmp_path)
    yield app
    await app.close()


async def test_every_change_is_seen_until_the_end(app: Limpet) -> None:
    go_on = [asyncio.Event() for _ in range(3)]

    @app.task(name="export", retry=[0])
    async def export() -> str:
        job = current_job()
        if job.attempt == 1:
            job.progress(0, 2, "reading")
            await go_on[0].wait()
            raise ConnectionError
        for page in (1, 2):
            job.progress(page, 2, "writing")
            await go_on[page].wait()
        return "done"

    job = await export.enqueue()
    seen: list[JobRecord] = []
    work: asyncio.Task[object] | None = None
    async with asyncio.timeout(120):
        async for status in job.watch():
            seen.append(status)
            work = work or asyncio.create_task(app.work(until_empty=True))  # the first look was before it ran
            if status.progress is not None:
                go_on[int(status.progress.done)].set()
    assert work is not None
    await work
    assert (seen[0].state, seen[0].attempt, seen[0].progress) == ("ready", 0, None)
    assert (seen[-1].state, seen[-1].attempt) == ("succeeded", 2)
    steps = [(status.attempt, status.progress.done) for status in seen if status.progress and status.state == "running"]
    assert [step for step in steps if step != (2, 0)] == [(1, 0), (2, 1), (2, 2)]
    changes = [(status.state, status.attempt, status.progress) for status in seen]
    assert len(set(changes)) == len(changes), "nothing is told twice"


async def test_a_flow_is_watched_until_all_its_jobs_have_ended(app: Limpet) -> None:
    go_on = asyncio.Event()

    @app.task(name="first")
    async def first() -> int:
        await go_on.wait()
        return 1

    @app.task(name="second")
    async def second(n: int) -> int:
        return n + 1

    flow = app.flow("report")
    flow.add(second.job(flow.add(first.job())))
    handle = await flow.enqueue()
    seen: list[dict[str, int]] = []
    work: asyncio.Task[object] | None = None
    async with asyncio.timeout(120):
        async for status in handle.watch():
            seen.append({state.value: count for state, count in status.counts.items()})
            work = work or asyncio.create_task(app.work(until_empty=True))
            if status.counts.get(State.running):
                go_on.set()
    assert work is not None
    await work
    assert seen[:2] == [{"blocked": 1, "ready": 1}, {"blocked": 1, "running": 1}]
    assert seen[-1] == {"succeeded": 2}
    assert [counts for counts, after in pairwise(seen) if counts == after] == []
    other = app.flow("waits")
    other.add(second.job(1))
    waiting = await other.enqueue()
    with pytest.raises(ResultTimeout, match=r"has not finished after 0.01 s"):
        await last_of(waiting.watch(timeout=0.01))


async def last_of(changes: AsyncIterator[object]) -> None:
    """Watch until the end."""
    async for _ in changes:
        pass


async def test_a_job_that_has_ended_is_told_once(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    job = await t.enqueue()
    await app.work(until_empty=True)
    assert [status.state async for status in job.watch()] == ["succeeded"]


async def watch(job: JobHandle[Any], timeout: float, tell: Callable[[JobRecord], None]) -> None:
    """Watch for so long, and tell each change."""
    async for status in job.watch(timeout=timeout):
        tell(status)


async def test_the_time_of_a_watch_is_over_before_the_job_ends(app: Limpet) -> None:
    job = await app.enqueue("t", {})
    for timeout in (0.01, 0):
        seen: list[JobRecord] = []
        with pytest.raises(ResultTimeout, match=rf"has not finished after {timeout} s \(the job continues"):
            await watch(job, timeout, seen.append)
        assert [status.state for status in seen] == ["ready"], "it is told at least once"


async def test_a_job_that_is_not_stored_is_refused(app: Limpet) -> None:
    with pytest.raises(JobNotFound, match=UNKNOWN):
        await watch(app.get(UNKNOWN), 60, print)


def watchers() -> list[asyncio.Task[Any]]:
    """What waits in this loop for the end of a job that is watched."""
    return [task for task in asyncio.all_tasks() if task.get_name() == "limpet-watch"]


async def test_a_watch_that_is_left_leaves_nothing_behind(app: Limpet) -> None:
    job = await app.enqueue("t", {})
    watching = job.watch()
    assert (await anext(watching)).state == "ready"
    looking = asyncio.create_task(anext(watching))
    while not watchers():
        await asyncio.wait({looking}, timeout=0.001)
    looking.cancel()
    await asyncio.wait({looking})
    await watching.aclose()
    assert watchers() == []
