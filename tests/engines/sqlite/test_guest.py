"""Enqueue inside the caller's own transaction, and the one SQLite library of a process and file."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from limpet.core.errors import SchemaOutdated, UnknownParent, WrongContext
from limpet.core.jobs.job import Enqueued, Job, Lane, Policy, Unique
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.stores.sqlite import SqliteStore
from limpet.stores.sqlite.library import library

LANE = Lane("default", "work")


def job(number: int, **more: Any) -> Job:
    return Job(number.to_bytes(16, "big"), LANE, Policy(), b"{}", **more)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal", busy_ms=50)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def conn(store: SqliteStore) -> Any:
    assert store.path is not None
    conn = library.connect(store.path, isolation_level=None)
    conn.execute("CREATE TABLE account (name TEXT, money INTEGER)")
    yield conn
    conn.close()


async def test_a_job_commits_with_the_callers_rows(store: SqliteStore, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO account VALUES ('a', 1)")
    (answer,) = await store.enqueue_on(conn, [job(1)])
    assert not answer.existing
    assert (await store.get([job(1).id])) == [None], "nothing is there before the commit"
    conn.execute("COMMIT")
    (view,) = await store.get([job(1).id])
    assert view is not None
    assert (await store.count()).enqueued == 1


async def test_a_job_rolls_back_with_the_callers_rows(store: SqliteStore, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO account VALUES ('a', 1)")
    await store.enqueue_on(conn, [job(1, unique=Unique("k"))])
    conn.execute("ROLLBACK")
    assert (await store.get([job(1).id])) == [None]
    (again,) = await store.enqueue([job(2, unique=Unique("k"))])
    assert not again.existing, "the unique key went with the transaction"
    assert (await store.count()).enqueued == 1


async def test_a_refused_job_leaves_the_callers_transaction_as_it_was(store: SqliteStore, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO account VALUES ('a', 1)")
    with pytest.raises(UnknownParent):
        await store.enqueue_on(conn, [job(1), job(2, after=(b"x" * 16,))])
    assert conn.in_transaction
    conn.execute("COMMIT")
    assert conn.execute("SELECT count(*) FROM account").fetchone() == (1,)
    assert (await store.count()).enqueued == 0


async def test_trouble_in_the_middle_leaves_the_callers_transaction_as_it_was(store: SqliteStore, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO account VALUES ('a', 1)")
    with pytest.raises(OverflowError):
        await store.enqueue_on(conn, [job(1, unique=Unique("k")), job(2, unique=Unique("l"), due_at_ms=1 << 70)])
    conn.execute("COMMIT")
    assert conn.execute("SELECT count(*) FROM account").fetchone() == (1,)
    assert await store.get([job(1).id]) == [None]
    assert (await store.count()).enqueued == 0


async def test_a_duplicate_answers_the_job_that_is_there(store: SqliteStore, conn: Any) -> None:
    await store.enqueue([job(1, unique=Unique("k"))])
    conn.execute("BEGIN IMMEDIATE")
    answers = await store.enqueue_on(conn, [job(2, unique=Unique("k"))])
    conn.execute("COMMIT")
    assert [(each.id, each.existing) for each in answers] == [(job(1).id, True)]


@pytest.mark.parametrize("factory", [library.Row, lambda cursor, row: {"it": "has no order"}])
async def test_rows_of_the_callers_own_making_change_nothing(store: SqliteStore, conn: Any, factory: Any) -> None:
    conn.row_factory = factory
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1), job(2)])
    conn.execute("COMMIT")
    assert (await store.count()).enqueued == 2


async def test_a_sleeping_worker_notices_the_callers_commit(store: SqliteStore, conn: Any) -> None:
    await store.beat(Beat("s", 15_000, Serves()))
    await store.claim(ClaimRequest("s", Serves(), 1, 1, 1))
    sleeping = asyncio.create_task(store.wait("s", 60_000))
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1)])
    conn.execute("COMMIT")
    assert (await sleeping).work
    assert len((await store.claim(ClaimRequest("s", Serves(), 1, 1, 2))).jobs) == 1


@pytest.mark.skipif(library is sqlite3, reason="the standard library's SQLite is the one in use")
async def test_a_connection_of_another_sqlite_library_is_refused_by_name(store: SqliteStore) -> None:
    other = sqlite3.connect(":memory:")
    with pytest.raises(WrongContext, match=r"sqlite3\.Connection cannot share the store's file.*pysqlite3"):
        await store.enqueue_on(other, [job(1)])
    other.close()


@pytest.mark.skipif(library is sqlite3, reason="the standard library's SQLite is the one in use")
async def test_an_engine_of_another_sqlite_library_is_refused_before_it_opens_the_file(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    with (
        Session(sqlalchemy.create_engine(f"sqlite:///{tmp_path}/jobs.db")) as session,
        pytest.raises(WrongContext, match=r"sqlite3\.Connection cannot share.*create_engine\(url, module=pysqlite3"),
    ):
        await store.enqueue_on(session, [job(1)])
    assert not (tmp_path / "jobs.db").exists()


async def test_a_driver_that_begins_by_itself_begins_with_our_statement(store: SqliteStore, conn: Any) -> None:
    conn.isolation_level = ""
    await store.enqueue_on(conn, [job(1)])
    assert conn.in_transaction
    conn.rollback()
    await store.enqueue_on(conn, [job(2)])
    conn.commit()
    assert [view is not None for view in await store.get([job(1).id, job(2).id])] == [False, True]


async def test_a_session_of_sqlalchemy_carries_a_job(store: SqliteStore) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{store.path}", module=library, poolclass=NullPool)
    with Session(engine) as session, session.begin():
        await store.enqueue_on(session, [job(1)])
    with Session(engine) as session:
        await store.enqueue_on(session, [job(2)])  # and no commit
    assert [view is not None for view in await store.get([job(1).id, job(2).id])] == [True, False]


async def test_a_connection_to_another_file_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    other = library.connect(str(tmp_path / "other.db"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(WrongContext, match=r"other\.db.*jobs\.db"):
        await store.enqueue_on(other, [job(1)])
    other.close()


async def test_a_store_in_memory_has_no_file_to_share(conn: Any) -> None:
    store = SqliteStore(None)
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(WrongContext, match="the store is in 'memory'"):
        await store.enqueue_on(conn, [job(1)])
    with pytest.raises(WrongContext, match="the store is in 'memory'"):
        await store.settle_on(conn, job(1).id, 1)
    conn.execute("ROLLBACK")
    await store.close()


async def test_a_connection_in_no_transaction_is_refused(store: SqliteStore, conn: Any) -> None:
    with pytest.raises(WrongContext, match="in no transaction"):
        await store.enqueue_on(conn, [job(1)])


async def test_a_verb_that_would_wait_for_the_callers_own_transaction_is_refused_at_once(
    store: SqliteStore, conn: Any
) -> None:
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1)])
    with pytest.raises(WrongContext, match="your own transaction"):
        await store.enqueue([job(2)])
    conn.execute("COMMIT")
    await store.enqueue([job(2)])


async def test_others_on_the_same_loop_wait_for_the_callers_transaction_and_are_not_refused(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    await store.open()
    conn = library.connect(str(tmp_path / "jobs.db"), isolation_level=None)

    async def guest() -> asyncio.Task[list[Enqueued]]:
        conn.execute("BEGIN IMMEDIATE")
        await store.enqueue_on(conn, [job(1)])
        return bystander()

    def bystander() -> asyncio.Task[list[Enqueued]]:
        return asyncio.create_task(store.enqueue([job(2)]), context=outside)

    outside = contextvars.copy_context()
    waiting = await guest()
    await asyncio.sleep(0)
    conn.execute("COMMIT")
    assert [each.existing for each in await waiting] == [False]
    conn.close()
    await store.close()


async def test_a_transaction_on_another_store_refuses_nothing(store: SqliteStore, conn: Any) -> None:
    other = SqliteStore(None)
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1)])
    await other.enqueue([job(1)])
    conn.execute("ROLLBACK")
    await other.close()


async def test_a_store_of_a_newer_release_is_left_alone(store: SqliteStore, conn: Any) -> None:
    conn.execute("UPDATE limpet_meta SET value = '99' WHERE key IN ('layout', 'min_client')")
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(SchemaOutdated, match="layout 99"):
        await store.enqueue_on(conn, [job(1)])
    conn.execute("ROLLBACK")


async def test_a_file_without_the_tables_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    conn = library.connect(str(tmp_path / "jobs.db"), isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(WrongContext, match="limpet migrate"):
        await store.enqueue_on(conn, [job(1)])
    conn.close()


async def test_a_connection_that_was_dropped_in_its_transaction_holds_nobody_up(store: SqliteStore) -> None:
    assert store.path is not None
    conn = library.connect(store.path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1)])
    del conn
    await store.enqueue([job(2)])
    assert await store.get([job(1).id]) == [None]
