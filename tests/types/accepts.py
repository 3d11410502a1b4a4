"""Everything here must type-check under mypy --strict; it is never run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, assert_type

from limpet import (
    Approval,
    Breaker,
    Budget,
    Cron,
    Every,
    FlowHandle,
    GroupHandle,
    Inject,
    JobHandle,
    JobRecord,
    JobSpec,
    Limit,
    Limpet,
    NewJob,
    NodeHandle,
    Once,
    Retry,
    State,
    Task,
    WorkReport,
    chain,
    chord,
    current_job,
    group,
)
from limpet.records import Explanation, FlowDetail, ScheduleRecord


class Pool:
    """Something that jobs share."""


app = Limpet("sqlite://", namespace="shop", queues=["mail", "default"])


@app.resource
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@app.task(
    name="email.send",
    queue="mail",
    priority="critical",
    timeout=30,
    retry=Retry(attempts=5, base=1, factor=4, cap=300, jitter="full"),
    tenant="customer",
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


@app.schedule(
    Cron("0 8 * * *", tz="Europe/Paris", overlap="skip", catch_up="last"), {"n": 1}, name="daily", priority="low"
)
@app.schedule(Every("5m", jitter=timedelta(seconds=5), expires_in=60), {"n": 2}, retry=[1, 10], tags=["often"])
@app.task(name="tidy")
async def tidy(n: int) -> str:
    return f"{current_job().tick:%H:%M}" if current_job().tick else ""


@app.on_dead
async def alert(job: JobRecord) -> None: ...


@app.on_finished(states=["succeeded", State.cancelled], tasks=["tidy"], queues=["mail"], retry=3, timeout=5)
def tell(job: JobRecord, db: Pool = Inject(pool)) -> int:
    return len(job.tags)


@app.enqueue_middleware
def stamp(job: NewJob) -> None:
    job.meta["request"] = str(job.args.get("customer", job.task))
    job.change(tags=[*job.tags, "web"], priority="low")


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
    await resize.options(meta={"request": "r1"}).enqueue(1)
    await resize.options(at=datetime.now(UTC), expires_in=timedelta(hours=1), retry=3, tags=["a"]).enqueue(1, width=2)

    assert_type(await send_email("acme", to="a@b.c"), dict[str, int])
    assert_type(resize(3), bytes)
    assert_type(send_email.job("acme", to="a"), JobSpec[dict[str, int]])
    await app.enqueue_many([send_email.job("acme", to="a"), resize.options(priority=0).job(3)])
    by_name = await app.enqueue("email.send", {"customer": "acme", "to": "a"}, priority="high", delay=5)
    await by_name.result()
    assert_type(await app.work(["mail"], concurrency=10, until_empty=True), WorkReport)


async def ask_for_flows() -> None:
    flow = app.flow("report")
    one = flow.add(count.job(1))
    assert_type(one, NodeHandle[int])
    many = flow.add(group([count.job(n) for n in range(3)]), after=one, name="many")
    assert_type(many, GroupHandle)
    last = flow.add(send_email.job(one, to=many), after=[one, "many/count", many])
    assert_type(await last.result(), dict[str, int])
    assert_type(flow.add(app.flow("part")), GroupHandle)
    handle = await flow.enqueue()
    assert_type(handle, FlowHandle)
    status = await handle.status()
    assert_type(status, FlowDetail)
    assert_type(status.counts, dict[State, int])
    assert_type(status.nodes[0].after, tuple[str, ...])
    assert_type(await handle.cancel("why"), int)
    assert_type(await handle.retry("many/count", reason="why"), int)
    assert_type(app.get_flow(handle.id), FlowHandle)

    end = await chain(count.job(1), chord([resize.job(1)], count.job()), send_email.job(to="x")).enqueue()
    assert_type(end, NodeHandle[dict[str, int]])
    assert_type(end.flow, FlowHandle)
    beside = await chain(count.job(1), group([count.job(), resize.job()])).enqueue()
    assert_type(beside, GroupHandle)
    assert_type(await chain(count.job(1)).enqueue(conn=None), NodeHandle[int])
    assert_type(await group([chain(count.job(1), resize.job())]).enqueue(), GroupHandle)
    job = await count.enqueue(1)
    await app.enqueue_many([resize.job(job)])


@app.task(
    limits=[Limit("m:{model}", rate="1/s", buckets={"tokens": "60/s"}), Budget("llm", usd=Decimal("0.5"), per="month")],
    cost=lambda model, **_: {"tokens": 5, "usd": 0.01},
)
async def think(model: str) -> None:
    current_job().spent(tokens=5, usd=0.01)
    await think.options(cost={"usd": Decimal("0.1")}).enqueue("small")
    await think.options(cost=3).enqueue("small")


async def remember() -> None:
    job = current_job()
    assert_type(await job.step("resize", resize, 1), bytes)
    assert_type(await job.step("count", count, 1), int)
    assert_type(await job.step("len", len, "text"), int)
    assert_type(await job.step.options(on_error="keep", retry=[1, 5])("double", lambda: 2.0), float)
    assert_type(job.step_key, str)
    await job.sleep(timedelta(days=1), name="night")
    await job.wait_for("paid", timeout="1h")
    assert_type(await job.approval("Pay?", timeout=60), Approval)
    await app.signal(await count.enqueue(1), "paid", {"by": "card"})
    await app.approve("order:7", by="ada", task="count")


def ask_sync() -> None:
    assert_type(chord([count.job(1)], resize.job()).enqueue_sync(), NodeHandle[bytes])
    assert_type(app.flow("report").enqueue_sync(), FlowHandle)
    job = count.enqueue_sync(3)
    assert_type(app.run(job.result(5)), int)
    assert_type(job.result_sync(timeout=5), int)
    assert_type(job.status_sync(), JobRecord)
    assert_type(job.cancel_sync("why"), Literal["cancelled", "cancelling", "finished"])
    assert_type(job.explain_sync(), Explanation)
    app.run(app.close())


def takes_any(task: Task[[int], int]) -> None:
    task.enqueue_sync(1)


takes_any(count)


async def ask_for_schedules() -> None:
    assert_type(await (await tidy.enqueue(3)).result(), str)
    view = await app.schedules.add(Once(datetime.now(UTC)), tidy, {"n": 1}, name="once", queue="mail")
    assert_type(view, ScheduleRecord)
    await app.schedules.change("once", Every(60), overlap="allow", expires_in=None, reason="why")
    await (await app.schedules.run_now("once")).result(timeout=5)
    assert_type((await app.schedules.next(3))[0].at, datetime)
    report = await app.schedules.backfill("once", datetime.now(UTC), dry_run=True)
    assert_type(report.ticks, int)
