"""A handler that writes its own rows and completes its job in one transaction: both happen, or neither."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from limpet.core.endings.signals import Snooze
from limpet.core.endings.transition import Drop, Lose
from limpet.core.errors import LeaseLost, NotSerialisable, WrongContext
from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import State
from limpet.runtime import JobContext, current_job
from limpet.stores.asking import attempts_of, joining
from limpet.stores.base import Store
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library
from tests.runtime import completing_jobs
from tests.runtime.running import Bench


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def bench(path: str) -> AsyncIterator[Bench]:
    """A bench on a file, with a table of the handlers' own beside the jobs."""
    store = SqliteStore(path, sync="normal")
    await store.open()
    conn = library.connect(path)
    conn.execute("CREATE TABLE effect (what)")
    conn.close()
    yield Bench(store)
    await store.close()


def effects(path: str) -> list[Any]:
    conn = library.connect(path)
    found = [row[0] for row in conn.execute("SELECT what FROM effect ORDER BY what")]
    conn.close()
    return found


def transaction(path: str) -> Any:
    """A connection that has written its own row and not committed."""
    conn = library.connect(path)
    conn.execute("INSERT INTO effect VALUES ('done')")
    return conn


async def test_an_async_handler_completes_in_its_own_transaction(bench: Bench, path: str) -> None:
    async def pays(amount: int) -> dict[str, int]:
        conn = transaction(path)
        await current_job().complete(conn, {"paid": amount})
        conn.commit()
        conn.close()
        return {"paid": amount}

    id = await bench.put(bench.task(pays), {"amount": 3})
    report = await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.result, view.attempt) == (State.succeeded, b'{"paid":3}', 1)
    assert effects(path) == ["done"]
    assert (report.succeeded, report.retried, report.dead, report.stale) == (1, 0, 0, 0)


async def test_a_plain_handler_completes_in_its_own_thread(bench: Bench, path: str) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", module=library, poolclass=NullPool)

    def pays(amount: int) -> None:
        with Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text("INSERT INTO effect VALUES ('session')"))
            current_job().complete_sync(session, amount)
        conn = transaction(path)  # a connection that no other thread may touch
        current_job().complete_sync(conn, amount + 1)
        conn.commit()
        conn.close()

    id = await bench.put(bench.task(pays), {"amount": 3})
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.result) == (State.succeeded, b"4")
    assert effects(path) == ["done", "session"]


async def test_a_handler_in_a_process_of_its_own_completes_on_the_workers_store(bench: Bench, path: str) -> None:
    app = completing_jobs.app
    app.rebind(f"sqlite:///{path}")
    job = await completing_jobs.isolated.enqueue(path)
    await app.work(until_empty=True)
    assert await job.result(60) == "noted"
    assert effects(path) not in ([], [os.getpid()])
    await app.close()


async def test_a_suspect_that_dies_after_its_commit_has_succeeded(bench: Bench, path: str) -> None:
    app = completing_jobs.app
    app.rebind(f"sqlite:///{path}")
    job = await completing_jobs.suspect.enqueue(path)
    for number in (1, 2):
        (held,) = await bench.claim_as(f"dying-{number}", 1)
        await bench.store.settle(f"dying-{number}", 1, [Lose(held.id, held.token)])
    report = await app.work(until_empty=True)
    assert await job.result(60) == "noted"
    assert len(effects(path)) == 1
    assert (report.succeeded, report.lost, report.dead) == (1, 0, 0)
    await app.close()


@pytest.mark.parametrize("error", [ConnectionError, lambda: Snooze(60), KeyboardInterrupt, asyncio.CancelledError])
async def test_a_handler_that_fails_after_its_commit_has_succeeded(
    bench: Bench, path: str, error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def pays() -> None:
        conn = transaction(path)
        current_job().complete_sync(conn)
        conn.commit()
        conn.close()
        raise error()

    id = await bench.put(bench.task(pays, retry=[0, 0]))
    with caplog.at_level(logging.INFO, "limpet.worker"):
        report = await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.result, view.attempt) == (State.succeeded, None, 1)
    assert effects(path) == ["done"]
    assert (report.succeeded, report.retried, report.snoozed, report.cancelled) == (1, 0, 0, 0)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "job succeeded in its own transaction" in warnings[-1]


async def test_a_handler_that_ends_well_is_not_reported_as_a_failure(
    bench: Bench, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def pays() -> str:
        conn = transaction(path)
        await current_job().complete(conn, "noted")
        conn.commit()
        conn.close()
        return "noted"

    await bench.put(bench.task(pays))
    with caplog.at_level(logging.INFO, "limpet.worker"):
        await bench.drain()
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert sum("job succeeded in its own transaction" in record.message for record in caplog.records) == 1


async def test_a_transaction_that_was_not_committed_is_a_failed_attempt(bench: Bench, path: str) -> None:
    async def forgets_once() -> str:
        conn = transaction(path)
        await current_job().complete(conn, "noted")
        if current_job().attempt > 1:
            conn.commit()
        conn.close()
        return "noted"

    id = await bench.put(bench.task(forgets_once, retry=[0]))
    report = await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    first, last = await attempts_of(bench.store, id)
    assert (first.outcome, first.type, last.outcome) == ("retried", "limpet.NotCommitted", "succeeded")
    assert effects(path) == ["done"]
    assert (report.succeeded, report.retried) == (1, 1)


async def test_a_transaction_that_is_never_committed_ends_among_the_dead(bench: Bench, path: str) -> None:
    async def forgets() -> None:
        conn = transaction(path)
        await current_job().complete(conn)
        conn.close()

    id = await bench.put(bench.task(forgets))
    await bench.drain()
    view = await bench.view(id)
    assert (view.state, view.reason) == (
        State.dead,
        "complete() was called, and its transaction was not committed",
    )


@pytest.mark.parametrize("returned", ["other", object()])
async def test_the_result_is_what_was_given_to_complete_and_another_is_warned_about(
    bench: Bench, path: str, returned: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def pays() -> Any:
        conn = transaction(path)
        await current_job().complete(conn, "noted")
        conn.commit()
        conn.close()
        return returned

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert (await bench.view(id)).result == b'"noted"'
    assert "keeps the result given to complete()" in caplog.text


async def test_a_result_without_a_stored_form_is_told_where_it_is_given(bench: Bench, path: str) -> None:
    async def pays() -> str:
        conn = transaction(path)
        try:
            await current_job().complete(conn, object())
        except NotSerialisable as error:
            return error.message
        finally:
            conn.close()
        return ""

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert b"has no stored form" in ((await bench.view(id)).result or b"")


@pytest.mark.parametrize("thread", [False, True])
async def test_a_stale_attempt_is_told_so_that_it_rolls_back(bench: Bench, path: str, thread: bool) -> None:
    started, taken = asyncio.Event(), asyncio.Event()
    loop, errors, contexts = asyncio.get_running_loop(), list[LeaseLost](), list[JobContext]()

    async def pays() -> None:
        contexts.append(current_job())
        started.set()
        await taken.wait()
        conn = transaction(path)
        try:
            await current_job().complete(conn, "late")
        except LeaseLost as error:
            await asyncio.sleep(0)  # as a rollback that is awaited: it must not be cut short
            errors.append(error)
        conn.close()

    def pays_in_a_thread() -> None:
        contexts.append(current_job())
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(taken.wait(), loop).result()
        conn = transaction(path)
        try:
            current_job().complete_sync(conn, "late")
        except LeaseLost as error:
            errors.append(error)
        conn.close()

    id = await bench.put(bench.task(pays_in_a_thread if thread else pays))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker().run(stop))
    await started.wait()
    token = (await bench.view(id)).token
    assert token is not None
    await bench.store.settle("its supervisor", 1, [Drop(id, token, "taken for dead")])  # it is not told
    taken.set()
    stop.set()
    report = await work
    assert [error.fix for error in errors] == ["roll back: another worker may run it"]
    assert contexts[0].cancelled
    assert (report.succeeded, report.stale) == (0, 0)
    assert effects(path) == []
    assert (await bench.view(id)).state is State.cancelled


async def test_others_go_on_while_a_handlers_transaction_is_open(bench: Bench, path: str) -> None:
    """The worker's own writes wait for it on the same loop: they are not the handler's, so they are not refused."""
    inside, asked = asyncio.Event(), asyncio.Event()

    async def pays() -> None:
        conn = transaction(path)
        await current_job().complete(conn)
        inside.set()
        await asked.wait()
        conn.commit()
        conn.close()

    async def other() -> None:
        await inside.wait()
        asked.set()

    ids = [await bench.put(bench.task(pays)), await bench.put(bench.task(other))]
    report = await bench.drain()
    assert [(await bench.view(id)).state for id in ids] == [State.succeeded] * 2
    assert report.succeeded == 2


async def test_a_handler_asks_its_store_for_nothing_else_meanwhile(bench: Bench, path: str) -> None:
    refused: list[str] = []

    async def pays() -> None:
        conn = transaction(path)
        await current_job().complete(conn)
        try:
            await current_job().save("page 7")
        except WrongContext as error:
            refused.append(error.message)
        conn.commit()
        conn.close()

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert (await bench.view(id)).state is State.succeeded
    assert "your own transaction" in refused[0]


async def test_a_connection_that_is_awaited_cannot_be_used_by_a_plain_handler(bench: Bench) -> None:
    def pays() -> str:
        try:
            current_job().complete_sync(AsyncSession(create_async_engine("postgresql+asyncpg://")))
        except WrongContext as error:
            return error.fix
        return ""

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert (await bench.view(id)).result == b'"await .complete()"'


async def test_a_store_in_memory_cannot(path: str) -> None:
    store: Store = SqliteStore(None)
    bench = Bench(store)

    async def pays() -> str:
        conn = library.connect(path)
        try:
            await current_job().complete(conn)
        except WrongContext as error:
            return error.message
        finally:
            conn.close()
        return ""

    id = await bench.put(bench.task(pays))
    await bench.drain()
    assert b"the store is in 'memory'" in ((await bench.view(id)).result or b"")
    await store.close()


async def test_the_handle_waits_for_the_truth(bench: Bench, path: str) -> None:
    app = completing_jobs.app
    app.rebind(f"sqlite:///{path}")
    job = await completing_jobs.isolated.enqueue(path)
    (held,) = await bench.claim_as("w", 1)
    conn = transaction(path)
    assert await joining(app.store, "complete a job").settle_on(conn, id_bytes(job.id), held.token, b'"noted"')
    conn.commit()
    conn.close()
    assert (await job.status()).state is State.running
    waiting = asyncio.create_task(job.result(30))
    await asyncio.sleep(0)
    await bench.store.leave("w")
    assert await waiting == "noted"
    await app.close()
