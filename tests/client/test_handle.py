"""A handle tells what became of its job, in values and typed errors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from limpet import (
    Cancel,
    Dead,
    FlowNotFound,
    JobCancelled,
    JobDead,
    JobNotFound,
    JobRecord,
    Limpet,
    Progress,
    ResultTimeout,
    current_job,
)
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.lease import Note
from limpet.stores.asking import attempts_of

UNKNOWN = "019a0000-0000-7000-8000-000000000000"


@dataclass
class Parcel:
    to: str
    sent_at: datetime


async def test_a_result_is_rebuilt_from_the_return_annotation(app: Limpet) -> None:
    @app.task(name="pack")
    async def pack(to: str, sent_at: datetime) -> Parcel:
        return Parcel(to, sent_at)

    sent_at = datetime(2026, 1, 2, tzinfo=UTC)
    job = await pack.enqueue("ada", sent_at)
    await app.work(until_empty=True)
    assert await job.result(timeout=60) == Parcel("ada", sent_at)
    assert await app.get(job.id).result() == Parcel("ada", sent_at)


async def test_none_is_a_result(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None: ...

    job = await t.enqueue()
    await app.work(until_empty=True)
    status = await job.status()
    assert (status.state, status.attempt, status.error) == ("succeeded", 1, None)
    assert status.started_at is not None
    assert status.finished_at is not None
    assert status.enqueued_at <= status.started_at <= status.finished_at
    await job.result()


async def test_result_waits_for_a_job_that_is_still_to_run(app: Limpet) -> None:
    @app.task(name="t")
    async def t(n: int) -> int:
        return n + 1

    job = await t.enqueue(1)
    waiting = asyncio.create_task(job.result(timeout=60))
    await app.work(until_empty=True)
    assert await waiting == 2


async def test_a_result_that_does_not_come_in_time_is_a_timeout_and_the_job_goes_on(app: Limpet) -> None:
    job = await app.enqueue("t", {})
    with pytest.raises(ResultTimeout):
        await job.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        await job.result(timeout=0)
    assert (await job.status()).state == "ready"


async def test_a_dead_job_tells_its_error_and_traceback(app: Limpet) -> None:
    @app.task(name="t", retry=1)
    async def t() -> None:
        raise ConnectionError("refused")

    @app.task(name="told")
    async def told() -> None:
        raise Dead("bad address")

    jobs = [await t.enqueue(), await told.enqueue()]
    await app.work(until_empty=True)
    with pytest.raises(JobDead) as caught:
        await jobs[0].result()
    assert "ConnectionError: refused" in caught.value.error
    assert 'raise ConnectionError("refused")' in caught.value.traceback
    with pytest.raises(JobDead, match="bad address"):
        await jobs[1].result()
    status = await jobs[0].status()
    assert status.state == "dead"
    assert (status.error, status.reason, status.failure) == ("ConnectionError", "refused", "ConnectionError: refused")
    assert "dead-letter queue" in str(await jobs[0].explain())


async def test_a_job_that_succeeded_in_the_end_has_no_error(app: Limpet) -> None:
    tries = []

    @app.task(name="t", retry=[0, 0])
    def t() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("refused")
        return "ok"

    job = await t.enqueue()
    await app.work(until_empty=True)
    status = await job.status()
    assert (status.state, status.attempt, status.error) == ("succeeded", 2, None)
    assert "refused" in (await attempts_of(app.store, id_bytes(job.id)))[0].message


async def test_cancelling_a_waiting_job_takes_its_dependents_along(app: Limpet) -> None:
    @app.task(name="t")
    def t() -> None: ...

    parent = await t.enqueue()
    child = await t.options(after=[parent]).enqueue()
    assert await parent.cancel("not needed") == "cancelled"
    assert await parent.cancel("again") == "finished"
    with pytest.raises(JobCancelled) as caught:
        await parent.result()
    assert caught.value.reason == "not needed"
    assert (await child.status()).state == "cancelled"


async def test_cancelling_a_running_job_asks_it_to_stop(app: Limpet) -> None:
    running = asyncio.Event()

    @app.task(name="t")
    async def t() -> None:
        running.set()
        await asyncio.Event().wait()

    job = await t.enqueue()
    worker = asyncio.create_task(app.work(until_empty=True))
    await running.wait()
    assert await job.cancel("enough") == "cancelling"
    report = await worker
    assert report.cancelled == 1
    assert (await job.status()).state == "cancelled"


async def test_a_job_may_cancel_itself(app: Limpet) -> None:
    @app.task(name="t")
    async def t() -> None:
        raise Cancel("nothing to do")

    job = await t.enqueue()
    await app.work(until_empty=True)
    with pytest.raises(JobCancelled, match="nothing to do"):
        await job.result()


async def test_an_unknown_job_is_not_found(app: Limpet) -> None:
    job = app.get(UNKNOWN)
    for ask in (job.status, job.result, job.cancel, job.explain):
        with pytest.raises(JobNotFound):
            await ask()


async def test_text_that_is_no_id_is_the_id_of_no_job(app: Limpet) -> None:
    with pytest.raises(JobNotFound, match="'42' is not a job id"):
        app.get("42")
    with pytest.raises(FlowNotFound, match="'42' is not a job id"):
        app.get_flow("42")


async def test_progress_of_a_running_job_shows_in_its_status(app: Limpet) -> None:
    seen: list[JobRecord] = []

    @app.task(name="t")
    async def t() -> None:
        job = current_job()
        body = b'{"done":3,"total":10,"message":"reading"}'
        await app.store.save(id_bytes(job.id), job.token, Note("progress", "", body))
        seen.append(await app.get(job.id).status())

    await t.enqueue()
    await app.work(until_empty=True)
    assert (seen[0].state, seen[0].attempt) == ("running", 1)
    assert seen[0].progress == Progress(3, 10, "reading")


def test_handles_of_one_job_are_equal_and_say_what_they_are() -> None:
    app = Limpet("sqlite://")
    assert app.get(UNKNOWN) == app.get(UNKNOWN)
    assert len({app.get(UNKNOWN), app.get(UNKNOWN)}) == 1
    assert UNKNOWN in repr(app.get(UNKNOWN))
