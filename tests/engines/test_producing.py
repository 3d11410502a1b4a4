"""Meta and enqueue middleware by every way to enqueue, from the call to the running job, on every engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from limpet import Every, JobContext, Limpet, NewJob, Task, current_job
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.meta import asked_meta
from limpet.ops import Operator
from limpet.outbox.carrier import Carrier
from limpet.outbox.table import open_table
from limpet.stores.sqlite.library import library
from tests.flows.conftest import ENGINES, app_on

request_id: Final = ContextVar("request_id", default="none")


@pytest.fixture(params=ENGINES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Limpet]:
    app = app_on(request.param, tmp_path)
    if request.param == "redis":
        app = Limpet(app.url, namespace=app.namespace, outbox=f"sqlite:///{tmp_path}/app.db", enqueue_timeout=60)
    yield app
    await app.close()


@pytest.fixture
def seen(app: Limpet) -> dict[str, Any]:
    """What each job found in its meta, by its argument."""
    return {}


@pytest.fixture
def note(app: Limpet, seen: dict[str, Any]) -> Task[..., None]:
    @app.task(name="note", retry=[0])
    async def note(way: str, before: object = None) -> None:
        seen[way] = dict(current_job().meta)

    return note


@contextlib.contextmanager
def transaction(app: Limpet, folder: Path) -> Iterator[Any]:
    """The caller's own, in the store's database or in that of the outbox; it is committed at the end."""
    if app.url.startswith("postgresql"):
        with psycopg.connect(app.url) as conn:
            yield conn
        return
    with contextlib.closing(library.connect(folder / ("app.db" if app.outbox else "jobs.db"))) as conn:
        if app.outbox is not None:
            conn.executescript(app.outbox.schema)
        conn.execute("BEGIN IMMEDIATE")
        yield conn
        conn.commit()


async def meta_of(app: Limpet, id: str) -> dict[str, Any]:
    """What is stored."""
    (view,) = await app.store.get([id_bytes(id)])
    assert view is not None
    return asked_meta(view.meta)


async def relay(app: Limpet) -> None:
    if app.outbox is not None:
        table = open_table(app.outbox.place, app.namespace)
        carrier = Carrier(app.store, table)
        while await carrier.step() != "idle":
            pass
        await table.close()


async def every_way(app: Limpet, note: Task[..., None], folder: Path) -> list[str]:
    """Enqueue a job by each way; the ways."""
    asks = note.options(meta={"asked": 1})
    await app.store.open()
    await asks.enqueue("one")
    await asyncio.to_thread(asks.enqueue_sync, "sync")
    await app.enqueue("note", {"way": "by name"}, meta={"asked": 1})
    await app.enqueue_many([asks.job("many"), asks.job("many too")])
    await app.enqueue_many([asks.job("chunks")], atomic=False)
    flow = app.flow("report")
    flow.add(asks.job("after the node", flow.add(asks.job("node"))))
    await flow.enqueue()
    await asks.job("work").enqueue()
    with transaction(app, folder) as conn:
        await asks.options(conn=conn).enqueue("conn")
        await app.enqueue_many([asks.job("many in conn")], conn=conn)
        other = app.flow("joined")
        other.add(asks.job("node in conn"))
        await other.enqueue(conn=conn)
    await relay(app)
    alone = ["one", "sync", "by name", "many", "many too", "chunks", "node", "after the node", "work"]
    return [*alone, "conn", "many in conn", "node in conn"]


async def test_meta_reaches_the_job_by_every_way(
    app: Limpet, note: Task[..., None], seen: dict[str, Any], tmp_path: Path
) -> None:
    ways = await every_way(app, note, tmp_path)
    await app.work(until_empty=True)
    assert seen == {way: {"asked": 1} for way in ways}


async def test_middleware_sees_every_job_in_the_callers_context(
    app: Limpet, note: Task[..., None], seen: dict[str, Any], tmp_path: Path
) -> None:
    told: list[str] = []

    @app.enqueue_middleware
    def stamp(job: NewJob) -> None:
        job.meta["request"] = request_id.get()

    @app.enqueue_middleware
    def tell(job: NewJob) -> None:
        assert job.meta["request"] == "r7", "the first declared came first"
        told.append(job.args["way"])

    request_id.set("r7")
    ways = await every_way(app, note, tmp_path)
    assert told == ways
    await app.work(until_empty=True)
    assert seen == {way: {"asked": 1, "request": "r7"} for way in ways}


async def test_meta_stays_over_retry_rerun_and_a_flow_that_runs_again(app: Limpet) -> None:
    found: list[object] = []

    @app.task(name="fails", retry=[0])
    async def fails() -> None:
        found.append(dict(current_job().meta))
        if len(found) != 4:
            raise ConnectionError("down")

    job = await fails.options(meta={"request": "r1"}).enqueue()
    await app.work(until_empty=True)
    operator = Operator(app.store, "ada")
    await operator.retry([job.id])
    await app.work(until_empty=True)
    assert (await job.status()).state == "succeeded"
    await operator.rerun([job.id])
    await app.work(until_empty=True)
    flow = app.flow("again")
    flow.add(fails.options(meta={"request": "r1"}).job(), name="only")
    handle = await flow.enqueue()
    await app.work(until_empty=True)
    await handle.retry("only")
    await app.work(until_empty=True)
    assert len(found) >= 7
    assert found == [{"request": "r1"}] * len(found)


async def test_the_newest_call_of_a_replaced_job_names_its_meta(app: Limpet, note: Task[..., None]) -> None:
    keyed = note.options(unique="k", delay=3_600)
    first = await keyed.options(meta={"request": "r1"}).enqueue("a")
    await keyed.options(meta={"request": "r2"}).enqueue("a")
    assert await meta_of(app, first.id) == {"request": "r1"}
    await keyed.options(meta={"request": "r3"}, on_duplicate="replace").enqueue("a")
    assert await meta_of(app, first.id) == {"request": "r3"}
    await keyed.options(on_duplicate="debounce").enqueue("a")
    assert await meta_of(app, first.id) == {}


async def test_meta_is_no_part_of_a_content_key(app: Limpet, note: Task[..., None]) -> None:
    keyed = note.options(unique=True)
    first = await keyed.options(meta={"request": "r1"}).enqueue("a")
    again = await keyed.options(meta={"request": "r2"}).enqueue("a")
    assert again.existing
    assert again.id == first.id


async def test_jobs_of_a_schedule_carry_its_meta(app: Limpet) -> None:
    found: list[tuple[str | None, object]] = []

    @app.schedule(Every("30d"), meta={"b": 1, "a": 2}, name="monthly")
    @app.task(name="digest")
    async def digest() -> None:
        found.append((current_job().schedule, dict(current_job().meta)))

    await app.publish()
    await app.schedules.run_now("monthly")
    await app.work(until_empty=True)
    assert found == [("monthly", {"a": 2, "b": 1})]


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_a_running_job_knows_what_it_is(app: Limpet, executor: str) -> None:
    found: list[tuple[object, ...]] = []
    instants: set[datetime] = set()

    def look(job: JobContext) -> None:
        found.append((job.max_attempts, job.is_last_attempt, job.args, job.queue, job.priority, job.priority_name))
        instants.add(job.enqueued_at)
        raise ConnectionError

    options: dict[str, Any] = {"name": "looks", "queue": "q", "retry": [0]}

    async def in_loop(n: int, who: str = "nobody") -> None:
        look(current_job())

    def in_thread(n: int, who: str = "nobody") -> None:
        look(current_job())

    looks = app.task(**options)(in_loop if executor == "async" else in_thread)
    wrapped: list[tuple[bool, object]] = []

    @app.middleware
    async def around(job: JobContext, run: Callable[[], Awaitable[object]]) -> object:
        wrapped.append((job.is_last_attempt, job.args["n"]))
        return await run()

    handle = await looks.options(priority="high").enqueue(3)
    await app.work(until_empty=True)
    assert found == [(2, last, {"n": 3}, "q", 3, "high") for last in (False, True)]
    assert wrapped == [(False, 3), (True, 3)]
    assert instants == {(await handle.status()).enqueued_at}
