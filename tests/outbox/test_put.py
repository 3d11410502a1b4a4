"""Writing into an outbox: inside the caller's own transaction, over every driver, where a relay will find it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from limpet.core.errors import BatchTooLarge, UsageError, WrongContext
from limpet.core.jobs.ids import id_text
from limpet.outbox import Outbox, parse_outbox
from limpet.stores.base import MAX_BATCH_BYTES
from limpet.stores.callers import run_here
from limpet.stores.sqlite.library import library
from limpet_contract.bench import Bench
from limpet_contract.harness import Visitor
from tests.outbox.ground import Ground, texts
from tests.servers.installations import POSTGRES
from tests.servers.postgres import CARELESS, PostgresServer, fresh_database, running, shared
from tests.stores import visitors

pytestmark = pytest.mark.postgres


async def writes_with_its_own_rows(ground: Ground, visitor: Visitor) -> None:
    """Commit and roll back take the caller's rows and the jobs together."""
    job, undone = ground.job(args=b'{"sum":"100%"}'), ground.job()
    await visitor.begin()
    await visitor.write("kept")
    await ground.outbox.put(visitor.conn, [job, job])
    await visitor.commit()
    await visitor.begin()
    await visitor.write("undone")
    await ground.outbox.put(visitor.conn, [undone])
    await visitor.rollback()
    assert await visitor.rows() == ["kept"]
    assert ground.left() == [id_text(job.id)] * 2


@pytest.mark.parametrize("driver", visitors.POSTGRES)
async def test_every_way_into_postgresql_carries_jobs(postgres_ground: Ground, driver: str) -> None:
    visitor = await visitors.POSTGRES[driver](postgres_ground.url)
    await writes_with_its_own_rows(postgres_ground, visitor)
    await visitor.close()


@pytest.mark.parametrize("driver", visitors.SQLITE)
async def test_every_way_into_sqlite_carries_jobs(sqlite_ground: Ground, driver: str) -> None:
    visitor = await visitors.SQLITE[driver](str(sqlite_ground.place.database))
    await writes_with_its_own_rows(sqlite_ground, visitor)
    await visitor.close()


async def test_pythons_own_sqlite3_will_do_since_the_file_is_not_the_stores(tmp_path: Path) -> None:
    """No other library opens this file in this process: the relay has one of its own."""
    path = tmp_path / "app.db"
    ground = Ground(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.executescript(ground.outbox.schema)
        job = ground.job()
        await ground.outbox.put(conn, [job])
        conn.commit()
        assert conn.execute("SELECT id FROM limpet_outbox").fetchall() == [(id_text(job.id),)]


async def test_a_refused_job_leaves_the_transaction_as_it_was(ground: Ground) -> None:
    ground.ask("CREATE TABLE orders (id INTEGER)")
    with contextlib.closing(ground.connect()) as conn:
        conn.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(BatchTooLarge):
            await ground.outbox.put(conn, [ground.job(args=b"x" * (MAX_BATCH_BYTES + 1))])
        conn.commit()
    assert ground.ask("SELECT id FROM orders") == [(1,)]
    assert ground.left() == []


MISSING = r"has no table limpet_outbox .*limpet outbox --create"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_missing_table_is_named_with_its_remedy_and_spoils_nothing(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path}/app.db" if kind == "sqlite" else fresh_database(shared(POSTGRES))
    ground = Ground(url)
    with contextlib.closing(ground.connect()) as conn:
        conn.execute("CREATE TABLE orders (id INTEGER)")
        conn.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(UsageError, match=MISSING):
            await ground.outbox.put(conn, [ground.job()])
        conn.commit()
    assert ground.ask("SELECT id FROM orders") == [(1,)]
    with pytest.raises(UsageError, match=MISSING):
        await ground.table().tally()
    await ground.close()


async def test_a_table_that_goes_missing_later_is_named_too(ground: Ground, bench: Bench) -> None:
    ground.ask("CREATE TABLE orders (id INTEGER)")
    await ground.add(1)
    carrier = ground.carrier(bench.store)
    await carrier.step()
    ground.ask("DROP TABLE limpet_outbox")
    with contextlib.closing(ground.connect()) as conn:
        conn.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(UsageError, match=MISSING):
            await ground.outbox.put(conn, [ground.job()])
        conn.commit()
    assert ground.ask("SELECT id FROM orders") == [(1,)]
    with pytest.raises(UsageError, match=MISSING):
        await carrier.step()


async def test_a_connection_in_no_transaction_is_refused(ground: Ground) -> None:
    if ground.place.dialect == "sqlite":
        conn = library.connect(ground.place.database, isolation_level=None)
    else:
        conn = psycopg.connect(ground.url, autocommit=True)
    with contextlib.closing(conn), pytest.raises(WrongContext, match="in no transaction"):
        await ground.outbox.put(conn, [ground.job()])
    assert ground.left() == []


async def test_a_connection_to_another_kind_of_database_is_refused(
    sqlite_ground: Ground, postgres_ground: Ground
) -> None:
    for here, there in ((sqlite_ground, postgres_ground), (postgres_ground, sqlite_ground)):
        with contextlib.closing(there.connect()) as conn, pytest.raises(WrongContext, match="and the outbox is"):
            await here.outbox.put(conn, [here.job()])


async def test_a_connection_to_another_database_is_refused_and_its_transaction_goes_on(
    postgres_ground: Ground,
) -> None:
    other = Ground(fresh_database(shared(POSTGRES)))
    await other.table().create()
    with contextlib.closing(other.connect()) as conn:
        conn.execute("CREATE TABLE orders (id INTEGER)")
        with pytest.raises(WrongContext, match="no relay would find the job"):
            await postgres_ground.outbox.put(conn, [postgres_ground.job()])
        conn.commit()
    assert other.ask("SELECT count(*) FROM orders") == [(0,)]
    assert other.left() == []
    await other.close()


async def test_a_database_of_the_same_name_elsewhere_is_refused(postgres_ground: Ground) -> None:
    """On another server, which may be a copy of this one; or the tables of another schema."""
    with running(PostgresServer(POSTGRES, settings=CARELESS)) as server:
        server.ask(f"CREATE DATABASE {postgres_ground.place.database}")
        other = Ground(server.url_of(str(postgres_ground.place.database)))
        await other.table().create()
        with contextlib.closing(other.connect()) as conn:
            conn.execute("CREATE TABLE orders (id INTEGER)")
            with pytest.raises(WrongContext, match=r"on another server.*no relay would find the job"):
                await postgres_ground.outbox.put(conn, [postgres_ground.job()])
            conn.commit()
            await other.outbox.put(conn, [other.job()])
            conn.commit()
        await other.close()
    with contextlib.closing(postgres_ground.connect()) as conn:
        conn.execute("CREATE SCHEMA mine")
        conn.execute("SET search_path = mine")
        conn.execute(postgres_ground.outbox.schema)
        with pytest.raises(WrongContext, match="or another schema"):
            await postgres_ground.outbox.put(conn, [postgres_ground.job()])
    await postgres_ground.add(1)
    assert len(postgres_ground.left()) == 1


async def test_a_server_that_was_restarted_is_asked_again() -> None:
    with running(PostgresServer(POSTGRES, settings=CARELESS)) as server:
        ground = Ground(server.url)
        await ground.table().create()
        await ground.add(1)
        server.stop()
        server.start()
        await ground.add(1)
        assert len(ground.left()) == 2
        await ground.close()


async def test_where_the_url_cannot_be_asked_the_name_has_to_do(
    postgres_ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    """With a loop and without: a producer may know the name, and the relay alone how to get in."""
    outbox = Outbox(parse_outbox(f"postgresql://postgres@127.0.0.1:1/{postgres_ground.place.database}"), "default")
    with postgres_ground.transaction() as conn:
        await outbox.put(conn, [postgres_ground.job()])
        await asyncio.to_thread(lambda: run_here(outbox.put(conn, [postgres_ground.job()]), conn, instead="await it"))
    assert len(postgres_ground.left()) == 2
    assert [record.message.partition(" outbox=")[0] for record in caplog.records if "told by" in record.message] == [
        "not asked where it is, told by its name"
    ]


async def test_code_that_cannot_await_asks_where_the_url_leads_too(postgres_ground: Ground) -> None:
    """In a thread of its own, and in one where a loop runs."""
    for call in (asyncio.to_thread, in_the_loop):
        outbox = Outbox(postgres_ground.place, "default")
        with postgres_ground.transaction() as conn:
            await call(run_here, outbox.put(conn, [postgres_ground.job()]), conn, instead="await it")
    assert len(postgres_ground.left()) == 2


async def in_the_loop(call: Any, *args: object, **options: object) -> None:
    call(*args, **options)


async def test_a_connection_to_another_file_or_to_memory_is_refused(sqlite_ground: Ground, tmp_path: Path) -> None:
    for path in (str(tmp_path / "other.db"), ":memory:"):
        with contextlib.closing(library.connect(path)) as conn:
            conn.execute("CREATE TABLE orders (id INTEGER)")
            with pytest.raises(WrongContext, match="no relay would find the job"):
                await sqlite_ground.outbox.put(conn, [sqlite_ground.job()])


async def test_the_same_file_by_another_name_is_the_same(sqlite_ground: Ground, folder: Path) -> None:
    os.symlink(folder / "app.db", folder / "alias.db")
    with contextlib.closing(library.connect(folder / "alias.db")) as conn:
        job = sqlite_ground.job()
        await sqlite_ground.outbox.put(conn, [job])
        conn.commit()
    assert sqlite_ground.left() == texts([job.id])


async def test_no_jobs_write_nothing(ground: Ground) -> None:
    with ground.transaction() as conn:
        await ground.outbox.put(conn, [])
    assert ground.left() == []


async def test_a_database_without_a_name_is_whichever_the_connection_is_to(postgres_ground: Ground) -> None:
    nameless = Outbox(parse_outbox("postgresql://postgres@127.0.0.1"), "default")
    with postgres_ground.transaction() as conn:
        await nameless.put(conn, [postgres_ground.job()])
    assert len(postgres_ground.left()) == 1
