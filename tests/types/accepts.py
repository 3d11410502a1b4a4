"""Everything here must type-check under mypy --strict; it is never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

from holdfast import Breaker, Holdfast, Inject, JobHandle, JobSpec, Limit, Retry, State, Task, WorkReport, current_job


class Pool:
    """Something that jobs share."""


app = Holdfast("sqlite://", namespace="shop", queues=["mail", "default"])


@app.resource
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@app.task(
    name="email.send",
    queue="mail",
    priority="critical",
    timeout=30,
    retry=Retry(attempts=5, base=1, factor=4, cap=300, jitter="full"),
    group="customer",
    limits=[Limit("customer:{customer}", rate="10/m"), Limit("smtp", concurrency=20)],
    breaker=Breaker(failures=5, within=60, cooldown=60),
)
async def send_email(customer: str, *, to: str, db: Pool = Inject(pool)) -> dict[str, int]:
    current_job().progress(1, 2, "sending")
    return {"sent": 1}


@app.task
def resize(image: int, width: int = 100) -> bytes:
    return b""


@app.task(retry=[1, 10, 60], unique=lambda args: str(args["n"]), priority=0, executor="process")
def count(n: int) -> int:
    return n


@app.on_startup
async def start() -> None: ...


@app.on_shutdown
def end() -> None: ...


async def ask() -> None:
    job = await send_email.enqueue("acme", to="a@b.c")
    assert_type(job, JobHandle[dict[str, int]])
    assert_type(await job.result(timeout=5), dict[str, int])
    assert_type(job.id, str)
    assert_type(job.existing, bool)
    status = await job.status()
    assert_type(status.state, State)
    assert_type(status.attempt, int)
    await job.cancel("why", force=True)
    assert str(await job.explain())

    later = send_email.options(delay=60, priority="low", unique="welcome:42", unique_for=3600, after=[job])
    assert_type(await later.enqueue("acme", to="x"), JobHandle[dict[str, int]])
    await resize.options(at=datetime.now(UTC), expires_in=timedelta(hours=1), retry=3, tags=["a"]).enqueue(1, width=2)

    assert_type(await send_email("acme", to="a@b.c"), dict[str, int])
    assert_type(resize(3), bytes)
    assert_type(send_email.job("acme", to="a"), JobSpec)
    await app.enqueue_many([send_email.job("acme", to="a"), resize.options(priority=0).job(3)])
    by_name = await app.enqueue("email.send", {"customer": "acme", "to": "a"}, priority="high", delay=5)
    await by_name.result()
    assert_type(await app.work(["mail"], concurrency=10, until_empty=True), WorkReport)


def ask_sync() -> None:
    job = count.enqueue_sync(3)
    assert_type(app.run(job.result(5)), int)
    app.run(app.close())


def takes_any(task: Task[[int], int]) -> None:
    task.enqueue_sync(1)


takes_any(count)
