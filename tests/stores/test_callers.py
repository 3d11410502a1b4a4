"""What a caller's connection is: every driver's, with statements that join the transaction it is in."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from limpet.core.errors import WrongContext
from limpet.stores.callers import Caller, caller_of, is_awaitable, run_here
from limpet.stores.sqlite.library import library
from limpet_contract.harness import Visitor
from tests.servers.installations import POSTGRES
from tests.servers.postgres import shared
from tests.stores import visitors

pytestmark = pytest.mark.postgres


@pytest.fixture
def url() -> str:
    """A database of a real server; each visitor has the same table there."""
    server = shared(POSTGRES)
    server.ask("DROP TABLE IF EXISTS visited")
    return server.url


@pytest.fixture(params=visitors.POSTGRES)
async def visitor(request: pytest.FixtureRequest, url: str) -> AsyncIterator[Visitor]:
    visitor = await visitors.POSTGRES[request.param](url)
    yield visitor
    await visitor.close()


@pytest.fixture(params=visitors.SQLITE)
async def guest(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Visitor]:
    guest = await visitors.SQLITE[request.param](str(tmp_path / "jobs.db"))
    yield guest
    await guest.close()


# -- PostgreSQL


async def test_a_statement_commits_with_the_callers_rows(visitor: Visitor) -> None:
    caller = caller_of(visitor.conn)
    assert caller.dialect == "postgresql"
    await visitor.begin()
    await visitor.write("a")
    await caller.refuse_outside_transaction()
    assert await caller.run("INSERT INTO visited VALUES ($1::text), ($2::text) RETURNING name", ["b", "100%"]) == [
        ("b",),
        ("100%",),
    ]
    await visitor.commit()
    assert await visitor.rows() == ["100%", "a", "b"]


async def test_a_statement_rolls_back_with_the_callers_rows(visitor: Visitor) -> None:
    await visitor.begin()
    await visitor.write("a")
    assert await caller_of(visitor.conn).run("INSERT INTO visited VALUES ('b')") == []
    await visitor.rollback()
    assert await visitor.rows() == []


async def test_ours_may_be_the_first_statement_of_the_transaction(visitor: Visitor) -> None:
    caller = caller_of(visitor.conn)
    await visitor.begin()
    await caller.refuse_outside_transaction()
    await caller.run("INSERT INTO visited VALUES ('undone')")
    await visitor.rollback()
    await visitor.begin()
    await caller.run("INSERT INTO visited VALUES ('done')")
    await visitor.commit()
    assert await visitor.rows() == ["done"]


async def test_values_and_arrays_come_back_as_they_went(visitor: Visitor) -> None:
    await visitor.begin()
    (row,) = await caller_of(visitor.conn).run(
        """SELECT $1::bytea, $2::text, $3::bigint, $4::bytea, $5::bytea[], $6::bigint[], $7::text[], $8::bytea[],
                  $3::bigint + 1, '50 %', $9::bigint[]""",
        [b"\0\xff", "it's %s $1", 1 << 52, None, [b"\0", None, b""], [1, 1 << 40, None], ["a", "{b}", None], [], [7]],
    )
    assert row[:4] == (b"\0\xff", "it's %s $1", 1 << 52, None)
    assert row[4:8] == ([b"\0", None, b""], [1, 1 << 40, None], ["a", "{b}", None], [])
    assert row[8:] == ((1 << 52) + 1, "50 %", [7])
    await visitor.rollback()


async def test_what_the_server_refuses_comes_through_and_the_caller_can_roll_back(visitor: Visitor) -> None:
    await visitor.begin()
    await visitor.write("a")
    with pytest.raises((psycopg.Error, asyncpg.PostgresError, sqlalchemy.exc.DBAPIError)):
        await caller_of(visitor.conn).run("SELECT 1 / 0")
    await visitor.rollback()
    assert await visitor.rows() == []


async def test_without_an_event_loop_a_connection_works_unless_it_is_awaited(visitor: Visitor) -> None:
    caller = caller_of(visitor.conn)
    await visitor.begin()
    if caller.awaitable:
        assert is_awaitable(visitor.conn)
        with pytest.raises(WrongContext, match="can only be awaited") as caught:
            run_here(caller.run("SELECT 1"), visitor.conn, instead="await it")
        assert caught.value.fix == "await it"
    else:
        answer = await asyncio.to_thread(lambda: run_here(caller.run("SELECT 1"), visitor.conn, instead=""))
        assert answer == [(1,)]
    await visitor.rollback()


async def test_what_waits_for_something_else_is_not_mistaken_for_done() -> None:
    conn = library.connect(":memory:")
    with pytest.raises(WrongContext, match="would have to wait") as caught:
        run_here(asyncio.sleep(0), conn, instead="await it")
    assert caught.value.fix == "await it"
    conn.close()


async def test_rows_of_the_callers_own_making_change_nothing(url: str) -> None:
    with psycopg.connect(url, row_factory=dict_row) as conn:
        assert await caller_of(conn).run("SELECT 1, 2") == [(1, 2)]
    guest = library.connect(":memory:")
    guest.row_factory = library.Row
    assert await caller_of(guest).run("SELECT 1, 2") == [(1, 2)]
    guest.close()


async def test_psycopg_in_autocommit_is_refused_outside_of_a_transaction(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        with pytest.raises(WrongContext, match=r"psycopg\.Connection is in no transaction.*conn\.transaction\(\)"):
            await caller_of(conn).refuse_outside_transaction()
        with conn.transaction():
            await caller_of(conn).refuse_outside_transaction()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        with pytest.raises(WrongContext, match="in no transaction"):
            await caller_of(other).refuse_outside_transaction()


FAILED = r"the transaction of the \S+ has failed.*roll it back"


async def ask(caller: Caller) -> None:
    """What every verb begins with."""
    await caller.refuse_outside_transaction()
    await caller.run("SELECT 1")


async def test_a_transaction_that_has_failed_is_refused(visitor: Visitor) -> None:
    caller = caller_of(visitor.conn)
    await visitor.begin()
    await visitor.write("a")
    with pytest.raises((psycopg.Error, asyncpg.PostgresError, sqlalchemy.exc.DBAPIError)):
        await caller.run("SELECT 1 / 0")
    for _ in range(2):  # to be told so changes nothing
        with pytest.raises(WrongContext, match=FAILED):
            await ask(caller)
    await visitor.rollback()
    await visitor.begin()
    await ask(caller)
    await visitor.rollback()
    assert await visitor.rows() == []


class Base(DeclarativeBase): ...


class Row(Base):
    """Of a table that is not there."""

    __tablename__ = "nowhere"
    id: Mapped[int] = mapped_column(primary_key=True)


async def test_a_session_whose_flush_has_failed_is_refused(url: str) -> None:
    """SQLAlchemy has rolled back by then, and goes on once its owner has done so too."""
    for engine in (
        sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool),
        sqlalchemy.create_engine("sqlite://", module=library),
    ):
        with Session(engine) as session:
            session.add(Row(id=1))
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                session.flush()
            with pytest.raises(WrongContext, match=FAILED):
                await ask(caller_of(session))
            session.rollback()
            await ask(caller_of(session))
    asked = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), poolclass=NullPool)
    async with AsyncSession(asked) as other:
        other.add(Row(id=1))
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            await other.flush()
        with pytest.raises(WrongContext, match=FAILED):
            await ask(caller_of(other))


async def test_psycopg_in_pipeline_mode_is_refused(url: str) -> None:
    with psycopg.connect(url) as conn:
        conn.execute("SELECT 1")
        with conn.pipeline(), pytest.raises(WrongContext, match=r"psycopg\.Connection is in pipeline mode"):
            await ask(caller_of(conn))
        await ask(caller_of(conn))
    async with await psycopg.AsyncConnection.connect(url) as other, other.pipeline():
        with pytest.raises(WrongContext, match=r"leave the block of conn\.pipeline\(\)"):
            await ask(caller_of(other))
    engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    async with engine.connect() as third:
        driver: Any = (await third.get_raw_connection()).driver_connection
        async with driver.pipeline():
            with pytest.raises(WrongContext, match="AsyncConnection is in pipeline mode"):
                await ask(caller_of(third))


async def test_asyncpg_outside_of_a_transaction_is_refused(url: str) -> None:
    conn = await asyncpg.connect(url)
    with pytest.raises(WrongContext, match=r"in no transaction.*async with conn\.transaction\(\)"):
        await caller_of(conn).refuse_outside_transaction()
    await conn.close()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy_in_autocommit_is_refused(url: str, driver: str) -> None:
    address = url.replace("postgresql:", f"postgresql+{driver}:")
    engine = create_async_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with engine.connect() as conn:
        with pytest.raises(WrongContext, match=r"in no transaction.*AUTOCOMMIT"):
            await caller_of(conn).refuse_outside_transaction()
    plain = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with (
        plain.connect().execution_options(isolation_level="AUTOCOMMIT") as other,
        pytest.raises(WrongContext, match=r"in no transaction.*AUTOCOMMIT"),
    ):
        await caller_of(other).refuse_outside_transaction()


# -- SQLite


async def test_a_guests_statement_commits_with_its_rows(guest: Visitor) -> None:
    caller = caller_of(guest.conn)
    assert (caller.dialect, caller.awaitable, is_awaitable(guest.conn)) == ("sqlite", False, False)
    assert issubclass(caller.library, library.Connection)
    for name, end in (("kept", guest.commit), ("undone", guest.rollback)):
        await guest.begin()
        await caller.refuse_outside_transaction()
        assert isinstance(caller.raw, library.Connection)
        await caller.run("INSERT INTO visited VALUES ($1), ($1 || $2)", [name, "?1"])
        await end()
    assert await guest.rows() == ["kept", "kept?1"]


async def test_what_is_written_on_the_drivers_own_connection_commits_with_sqlalchemy(guest: Visitor) -> None:
    for name, end in (("kept", guest.commit), ("undone", guest.rollback)):
        await guest.begin()
        caller_of(guest.conn).raw.execute(f"INSERT INTO visited VALUES ('{name}')")
        await end()
    assert await guest.rows() == ["kept"]


async def test_a_connection_whose_owner_says_begin_is_refused_before_it_did(tmp_path: Path) -> None:
    conn = library.connect(str(tmp_path / "jobs.db"), isolation_level=None)
    with pytest.raises(WrongContext, match=r"in no transaction.*BEGIN IMMEDIATE"):
        await caller_of(conn).refuse_outside_transaction()
    conn.close()
    engine = sqlalchemy.create_engine(
        f"sqlite:///{tmp_path}/jobs.db", module=library, poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
    with Session(engine) as session, pytest.raises(WrongContext, match=r"in no transaction.*AUTOCOMMIT"):
        await caller_of(session).refuse_outside_transaction()


async def test_the_library_of_an_engine_is_known_before_it_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with Session(engine) as session:
        assert caller_of(session).library is sqlite3.Connection
    assert not path.exists()


# -- refused


def refused(conn: object) -> str:
    with pytest.raises(WrongContext) as caught:
        caller_of(conn)
    return str(caught.value)


async def test_what_is_no_connection_is_refused_by_name() -> None:
    assert refused("postgresql://") == (
        "a str cannot carry jobs (pass a connection of psycopg, asyncpg or pysqlite3, or a Connection, Session, "
        "AsyncConnection or AsyncSession of SQLAlchemy over one of them)"
    )
    assert refused(sqlalchemy.create_engine("sqlite://")).startswith("a sqlalchemy.engine.base.Engine cannot")


async def test_a_session_without_an_engine_is_refused_with_the_way_out() -> None:
    assert "session.connection(bind_arguments=" in refused(Session())


class Elsewhere(sqlalchemy.engine.default.DefaultDialect):
    """Somebody's dialect, for a database or driver that is not here."""

    supports_statement_cache = False

    def __init__(self, name: str, driver: str) -> None:
        super().__init__()
        self.name, self.driver = name, driver


def elsewhere(name: str, driver: str) -> Any:
    """A session that has not connected."""
    engine = sqlalchemy.create_engine("sqlite://", module=library)
    engine.dialect = Elsewhere(name, driver)
    return Session(engine)


async def test_another_database_or_driver_is_refused_by_name() -> None:
    assert "to mysql cannot carry jobs" in refused(elsewhere("mysql", "pymysql"))
    assert "over the driver pg8000 cannot carry jobs (use postgresql+psycopg://" in refused(
        elsewhere("postgresql", "pg8000")
    )


async def test_a_session_over_an_async_sqlite_driver_is_refused_with_the_way_out() -> None:
    engine = create_async_engine("postgresql+asyncpg://")
    engine.sync_engine.dialect = Elsewhere("sqlite", "aiosqlite")
    told = refused(AsyncSession(engine))
    assert "AsyncSession over aiosqlite cannot carry jobs" in told
    assert "create_engine(url, module=pysqlite3.dbapi2)" in told


async def test_a_connection_to_another_kind_of_database_is_refused(tmp_path: Path) -> None:
    conn = library.connect(str(tmp_path / "jobs.db"))
    with pytest.raises(WrongContext, match="to SQLite cannot carry jobs of a store in PostgreSQL"):
        caller_of(conn).expect("postgresql")
    caller_of(conn).expect("sqlite")
    conn.close()
