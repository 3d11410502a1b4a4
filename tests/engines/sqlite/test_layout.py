"""A file is brought to the next layout, a made-up one, once, while it is full and other processes have it open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet.core.endings.transition import Lose, RetryAfter, Succeed
from limpet.core.errors import SchemaOutdated
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.core.jobs.state import State
from limpet.stores.sqlite import SqliteStore, connection, effect, guest
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.statements import sources
from limpet_contract.hand import failure

JOB = Job((1).to_bytes(16, "big"), Lane("default", "work"), Policy(), b"{}")
OTHER = Job((2).to_bytes(16, "big"), Lane("default", "work"), Policy(), b"{}")

# What a layout may do: add columns, indexes and tables, and fill them.
NEXT = connection.LAYOUT + 1
SCHEMA = """
ALTER TABLE limpet_job ADD COLUMN region TEXT;
CREATE INDEX limpet_job_region ON limpet_job (region, id) WHERE region IS NOT NULL;
UPDATE limpet_job SET region = 'eu' WHERE state < 4;
CREATE TABLE limpet_region (name TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO limpet_region VALUES ('eu');
"""
NAMES = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
BEGUN = "BEGIN IMMEDIATE"


FOR_ITSELF = f"-- Min client: {NEXT}\n{SCHEMA}"  # a layout on which this release would do harm


@contextmanager
def next_release(monkeypatch: pytest.MonkeyPatch, schema: str = SCHEMA) -> Iterator[None]:
    """The release that has the next layout, instead of this one."""
    with monkeypatch.context() as then:
        then.setattr(connection, "LAYOUT", NEXT)
        then.setattr(guest, "LAYOUT", NEXT)
        then.setitem(sources(), f"schema_{NEXT:03}", schema)
        yield


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def ours(path: str) -> AsyncIterator[SqliteStore]:
    """A handle of this release, with a job in the file, which it goes on serving."""
    store = SqliteStore(path, sync="normal")
    await store.enqueue([JOB])
    await store.count()  # by now every connection it has is open
    yield store
    await store.close()


async def bring_up(path: str, monkeypatch: pytest.MonkeyPatch, schema: str = SCHEMA) -> None:
    """The next release opens the file for the first time."""
    store = SqliteStore(path, sync="normal")
    with next_release(monkeypatch, schema):
        await store.open()
    await store.close()


def ask(path: str, sql: str) -> list[tuple[Any, ...]]:
    with closing(library.connect(path)) as conn:
        found: list[tuple[Any, ...]] = conn.execute(sql).fetchall()
    return found


def everything(path: str) -> dict[str, list[tuple[Any, ...]]]:
    """All tables with all rows."""
    found = {name: ask(path, f"SELECT * FROM {name}") for kind, name, _ in ask(path, NAMES) if kind == "table"}
    return {"": ask(path, NAMES), **found}


async def claimed(store: SqliteStore, session: str = "s") -> Claimed:
    await store.beat(Beat(session, 15_000, Serves()))
    (job,) = (await store.claim(ClaimRequest(session, Serves(), 1, 1, 1))).jobs
    return job


async def test_a_file_that_was_brought_up_is_as_a_fresh_one(
    path: str, tmp_path: Path, ours: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ask(path, NAMES)
    await bring_up(path, monkeypatch)
    await bring_up(str(tmp_path / "fresh.db"), monkeypatch)
    assert ask(path, NAMES) == ask(str(tmp_path / "fresh.db"), NAMES)
    assert {(kind, name) for kind, name, _ in before} < {(kind, name) for kind, name, _ in ask(path, NAMES)}
    assert ask(path, "SELECT id, region FROM limpet_job") == [(JOB.id, "eu")]


async def test_a_file_that_is_up_to_date_is_not_written_to(path: str, ours: SqliteStore) -> None:
    before = everything(path)
    with closing(library.connect(path, isolation_level=None)) as conn:
        seen: list[str] = []
        conn.set_trace_callback(seen.append)
        connection.migrate(conn, "limpet_")
    assert BEGUN not in seen
    assert everything(path) == before


async def brought_up_by(path: str, count: int) -> list[asyncio.Task[None]]:
    """So many openings of the file that have seen its layout and wait for the lock."""
    waiting = threading.Semaphore(0)

    def bring_up() -> None:
        with closing(library.connect(path, isolation_level=None, timeout=60)) as conn:
            conn.set_trace_callback(lambda statement: waiting.release() if statement == BEGUN else None)
            connection.migrate(conn, "limpet_")

    tasks = [asyncio.create_task(asyncio.to_thread(bring_up)) for _ in range(count)]
    for _ in tasks:
        await asyncio.to_thread(waiting.acquire)
    return tasks


async def test_two_may_bring_it_up_at_once(path: str, ours: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(library.connect(path, isolation_level=None)) as lock, next_release(monkeypatch):
        lock.execute(BEGUN)
        both = await brought_up_by(path, 2)
        lock.execute("COMMIT")
        await asyncio.gather(*both)
        assert connection.layout_of(lock, "limpet_") == (NEXT, 1)


async def test_a_release_that_waited_for_a_later_one_leaves_its_layout_alone(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both open a new file; the later release gets the lock first."""
    with closing(library.connect(path, isolation_level=None)) as lock:
        lock.execute("PRAGMA journal_mode = WAL")
        lock.execute(BEGUN)
        (late,) = await brought_up_by(path, 1)
        with next_release(monkeypatch):
            connection._replay(lock, "limpet_")
        lock.execute("COMMIT")
        await late
        assert connection.layout_of(lock, "limpet_") == (NEXT, 1)


async def test_a_process_that_has_the_file_open_works_on_through_an_upgrade(
    path: str, ours: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await claimed(ours)
    await bring_up(path, monkeypatch)
    await ours.settle("s", 1, [RetryAfter(first.id, first.token, failure(), 0)])
    await ours.enqueue([OTHER])
    jobs = (await ours.claim(ClaimRequest("s", Serves(), 2, 2, 2))).jobs
    assert {job.id for job in jobs} == {JOB.id, OTHER.id}
    await ours.settle("s", 2, [Succeed(job.id, job.token) for job in jobs])
    counts = await ours.count()
    assert (counts.enqueued, counts.succeeded, counts.total(State.ready)) == (2, 2, 0)
    assert ask(path, "SELECT id, region FROM limpet_job ORDER BY id") == [(JOB.id, "eu"), (OTHER.id, None)]


async def test_a_process_that_opens_the_file_again_works_on_a_later_layout(
    path: str, ours: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a fork, a new child of a worker, a first read and a caller's connection do."""
    await bring_up(path, monkeypatch)
    late = SqliteStore(path, sync="normal")
    with closing(library.connect(path)) as conn:
        await late.enqueue_on(conn, [OTHER])
        conn.commit()
        job = await claimed(late)
        assert await late.settle_on(conn, job.id, job.token, b"1")
        conn.commit()
    await late.settle("s", 1, [Succeed(job.id, job.token)])
    assert (await late.count()).enqueued == 2
    await late.close()
    with closing(library.connect(path)) as conn:
        assert connection.layout_of(conn, "limpet_") == (NEXT, 1)


async def test_a_layout_that_is_not_for_this_release_is_refused_with_the_fix_and_left_alone(
    path: str, ours: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bring_up(path, monkeypatch, FOR_ITSELF)
    before = everything(path)
    late = SqliteStore(path)
    with pytest.raises(SchemaOutdated, match=f"layout {NEXT}, this release knows {connection.LAYOUT}") as caught:
        await late.enqueue([OTHER])
    assert caught.value.fix == "upgrade limpet"
    with closing(library.connect(path)) as conn, pytest.raises(SchemaOutdated, match=f"layout {NEXT}"):
        await late.enqueue_on(conn, [OTHER])
    await late.close()
    assert everything(path) == before


async def test_effects_that_were_noted_under_another_lease_are_not_repeated(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know the note took the job back from a dead worker, as one of another release may."""
    store = SqliteStore(path, sync="normal")
    await store.enqueue([JOB])
    first = await claimed(store, "first")
    conn = library.connect(path)
    assert await store.settle_on(conn, first.id, first.token, b'"first"')
    conn.commit()
    with monkeypatch.context() as other:
        other.setattr(effect, "SETTLED", 0)
        await store.settle("its supervisor", 1, [Lose(first.id, first.token)])
    again = await claimed(store, "second")
    assert again.token > first.token
    assert not await store.settle_on(conn, again.id, again.token, b'"second"'), "it must roll back"
    conn.rollback()
    conn.close()
    await store.settle("second", 2, [Lose(again.id, again.token)])
    (view,) = await store.get([JOB.id])
    assert view is not None
    assert (view.state, view.result) == (State.succeeded, b'"first"')
    assert ask(path, "SELECT count(*) FROM limpet_settled") == [(0,)], "what was noted goes with the end"
    await store.close()
