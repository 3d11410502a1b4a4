"""Jobs that are there if and when the caller's own transaction commits: one, many, with and without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from limpet import BatchTooLarge, InvalidOption, JobNotFound, Limpet, UnknownParent, WrongContext
from limpet.client.task import AsyncTask
from limpet.stores.sqlite.library import library

Mail = AsyncTask[[str], None]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Limpet]:
    app = Limpet(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    await app.store.open()
    yield app
    await app.close()


@pytest.fixture
def mail(app: Limpet) -> Mail:
    @app.task(name="mail")
    async def mail(to: str) -> None: ...

    return mail


@pytest.fixture
def conn(app: Limpet, tmp_path: Path) -> Any:
    conn = library.connect(f"{tmp_path}/jobs.db", isolation_level=None)
    yield conn
    conn.close()


@pytest.fixture
def engine(app: Limpet, tmp_path: Path) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"sqlite:///{tmp_path}/jobs.db", module=library, poolclass=NullPool)


async def _count(app: Limpet) -> int:
    return (await app.store.count()).enqueued


async def test_a_job_joins_the_callers_own_transaction(mail: Mail, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    kept = await mail.options(conn=conn).enqueue("a@b.c")
    same = mail.options(conn=conn, id=kept.id).enqueue_sync("a@b.c")
    conn.execute("COMMIT")
    conn.execute("BEGIN IMMEDIATE")
    undone = await mail.options(conn=conn).enqueue("x@y.z")
    conn.execute("ROLLBACK")
    assert (kept.existing, same.existing, same.id) == (False, True, kept.id)
    assert (await kept.status()).state == "ready"
    with pytest.raises(JobNotFound):
        await undone.status()


async def test_a_session_carries_jobs_with_and_without_a_loop(
    app: Limpet, mail: Mail, engine: sqlalchemy.Engine
) -> None:
    def without() -> str:
        with Session(engine) as session, session.begin():
            return mail.options(conn=session, unique="once").enqueue_sync("a@b.c").id

    id = await asyncio.to_thread(without)
    with Session(engine) as session, session.begin():
        again = await mail.options(conn=session, unique="once").enqueue("a@b.c")
    assert (again.id, again.existing) == (id, True)
    assert await _count(app) == 1


async def test_many_jobs_join_one_transaction(app: Limpet, mail: Mail, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        await app.enqueue_many([mail.job("a@b.c"), mail.job("x@y.z")], conn=session)
        session.rollback()
        assert await _count(app) == 0
        kept = await app.enqueue_many([mail.job("a@b.c"), mail.job("x@y.z")], conn=session)
        same = await app.enqueue_many(
            [mail.job("a@b.c"), mail.job("x@y.z")], ids=[job.id for job in kept], conn=session
        )
        session.commit()
    assert [job.existing for job in kept] == [False, False]
    assert [(job.id, job.existing) for job in same] == [(job.id, True) for job in kept]
    assert await _count(app) == 2


async def test_many_jobs_join_from_code_without_a_loop(app: Limpet, mail: Mail, engine: sqlalchemy.Engine) -> None:
    def without() -> int:
        with Session(engine) as session, session.begin():
            return len(app.run(app.enqueue_many([mail.job("a@b.c")], conn=session)))

    assert await asyncio.to_thread(without) == 1
    assert await _count(app) == 1


async def test_a_bad_job_of_many_leaves_the_transaction_as_it_was(app: Limpet, mail: Mail, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    await mail.options(conn=conn).enqueue("a@b.c")
    orphan = mail.options(after="01890a5d-ac96-774b-bcce-b302099a8057")
    with pytest.raises(UnknownParent, match="item 1"):
        await app.enqueue_many([mail.job("a@b.c"), orphan.job("x@y.z")], conn=conn)
    with pytest.raises(BatchTooLarge):
        await app.enqueue_many((mail.job("a@b.c") for _ in range(20_001)), conn=conn)
    conn.execute("COMMIT")
    assert await _count(app) == 1


async def test_a_transaction_is_never_ignored_in_bulk(app: Limpet, mail: Mail, conn: Any) -> None:
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(InvalidOption, match=r"jobs\[1\]: conn=.*enqueue_many\(jobs, conn=\.\.\.\)"):
        await app.enqueue_many([mail.job("a@b.c"), mail.options(conn=conn).job("x@y.z")])
    with pytest.raises(InvalidOption, match="all or nothing anyway"):
        await app.enqueue_many([mail.job("a@b.c")], conn=conn, atomic=False)
    conn.execute("COMMIT")
    assert await _count(app) == 0


async def test_a_job_outside_of_the_callers_own_transaction_is_refused_while_that_is_open(
    app: Limpet, mail: Mail, conn: Any
) -> None:
    conn.execute("BEGIN IMMEDIATE")
    await mail.options(conn=conn).enqueue("a@b.c")
    with pytest.raises(WrongContext, match="your own transaction"):
        await mail.enqueue("x@y.z")
    with pytest.raises(WrongContext, match="your own transaction"):
        await app.enqueue_many([mail.job("x@y.z")])
    conn.execute("COMMIT")
    await mail.enqueue("x@y.z")
    assert await _count(app) == 2


async def test_without_a_loop_it_is_refused_too(mail: Mail, engine: sqlalchemy.Engine) -> None:
    def without() -> None:
        with Session(engine) as session, session.begin():
            mail.options(conn=session).enqueue_sync("a@b.c")
            mail.enqueue_sync("x@y.z")

    with pytest.raises(WrongContext, match="your own transaction"):
        await asyncio.to_thread(without)


async def test_a_connection_that_is_awaited_needs_a_loop(mail: Mail) -> None:
    session = AsyncSession(create_async_engine("postgresql+asyncpg://"))
    with pytest.raises(WrongContext, match="AsyncSession can only be awaited") as caught:
        mail.options(conn=session).enqueue_sync("a@b.c")
    assert caught.value.fix == "await .enqueue()"


async def test_a_connection_to_another_kind_of_database_is_refused(mail: Mail) -> None:
    session = AsyncSession(create_async_engine("postgresql+asyncpg://"))
    with pytest.raises(WrongContext, match="to PostgreSQL cannot carry jobs of a store in SQLite"):
        await mail.options(conn=session).enqueue("a@b.c")
