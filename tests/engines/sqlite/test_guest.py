"""Enqueue inside the caller's own transaction, and the one SQLite library of a process and file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import UnknownParent, WrongContext
from holdfast.core.job import Job, Lane, Policy, Unique
from holdfast.core.lease import Beat, ClaimRequest, Serves
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.library import library

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


async def test_a_duplicate_answers_the_job_that_is_there(store: SqliteStore, conn: Any) -> None:
    await store.enqueue([job(1, unique=Unique("k"))])
    conn.execute("BEGIN IMMEDIATE")
    answers = await store.enqueue_on(conn, [job(2, unique=Unique("k"))])
    conn.execute("COMMIT")
    assert [(each.id, each.existing) for each in answers] == [(job(1).id, True)]


async def test_rows_of_the_callers_own_making_change_nothing(store: SqliteStore, conn: Any) -> None:
    conn.row_factory = library.Row
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


async def test_a_connection_to_another_file_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    other = library.connect(str(tmp_path / "other.db"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(WrongContext, match=r"other\.db.*jobs\.db"):
        await store.enqueue_on(other, [job(1)])
    other.close()


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


async def test_a_connection_that_was_dropped_in_its_transaction_holds_nobody_up(store: SqliteStore) -> None:
    assert store.path is not None
    conn = library.connect(store.path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    await store.enqueue_on(conn, [job(1)])
    del conn
    await store.enqueue([job(2)])
    assert await store.get([job(1).id]) == [None]
