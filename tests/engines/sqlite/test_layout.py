"""A store of the release before is brought up to this one, once, while it is full and whoever opens it first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from limpet.core.errors import SchemaOutdated
from limpet.core.ids import id_text
from limpet.core.job import Job, Lane, Policy, Unique
from limpet.core.lease import Beat, Claimed, ClaimRequest, Serves
from limpet.core.state import State
from limpet.core.transition import Lose, RetryAfter
from limpet.core.view import Query, Term
from limpet.stores.sqlite import SqliteStore, connection, settle
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.statements import statements
from limpet.testing.hand import failure

JOB = Job((1).to_bytes(16, "big"), Lane("default", "work"), Policy(), b"{}")
FLOW = (7).to_bytes(16, "big")
TERMS = (Term("flow", id_text(FLOW)), Term("unique", "once"))

# How the release before stores jobs: it has no columns for the last two values that they have in common.
STORED_BEFORE = """
INSERT INTO limpet_job (state, lane, priority, due_ms, enqueued_ms, expires_ms, policy, id, args, extra)
SELECT a, b, c, d, e, f, g, column1, column2, column3
FROM (SELECT ? AS a, ? AS b, ? AS c, ? AS d, ? AS e, ? AS f, ? AS g, ?, ?) CROSS JOIN (VALUES :rows)
"""


def in_flow(number: int) -> Job:
    """A job that both terms find."""
    id = number.to_bytes(16, "big")
    return Job(id, Lane("default", f"task {number}"), Policy(), b"{}", unique=Unique("once"), flow=FLOW)


@contextmanager
def release_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as before:
        before.setattr(connection, "LAYOUT", connection.LAYOUT - 1)
        before.setitem(statements("limpet_"), "job_insert", STORED_BEFORE)
        yield


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def old(path: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    """A handle of the release before, with a job in the store that it goes on serving."""
    store = SqliteStore(path, sync="normal")
    with release_before(monkeypatch):
        await store.enqueue([JOB])
        await store.count()  # by now every connection it has is open
    yield store
    await store.close()


def layout(path: str) -> list[tuple[Any, ...]]:
    """What is in a file, as SQLite sees it."""
    conn = library.connect(path)
    found: list[tuple[Any, ...]] = conn.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
    conn.close()
    return found


async def claimed(store: SqliteStore, session: str = "s") -> Claimed:
    await store.beat(Beat(session, 15_000, Serves()))
    (job,) = (await store.claim(ClaimRequest(session, Serves(), 1, 1, 1))).jobs
    return job


async def test_a_store_that_was_brought_up_is_as_a_fresh_one(path: str, tmp_path: Path, old: SqliteStore) -> None:
    before = layout(path)
    store, fresh = SqliteStore(path, sync="normal"), SqliteStore(str(tmp_path / "fresh.db"))
    await store.open()
    await fresh.open()
    assert layout(path) == layout(str(tmp_path / "fresh.db"))
    assert {(kind, name) for kind, name, _ in before} < {(kind, name) for kind, name, _ in layout(path)}
    assert await store.get([JOB.id]) != [None]
    await store.close()
    await fresh.close()


async def test_two_may_bring_it_up_at_once(path: str, old: SqliteStore) -> None:
    waiting = threading.Semaphore(0)

    def bring_up() -> None:
        conn = library.connect(path, isolation_level=None, timeout=60)
        conn.set_trace_callback(lambda statement: waiting.release() if statement == "BEGIN IMMEDIATE" else None)
        connection.migrate(conn, "limpet_")
        conn.close()

    lock = library.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    both = [asyncio.create_task(asyncio.to_thread(bring_up)) for _ in range(2)]
    for _ in both:
        await asyncio.to_thread(waiting.acquire)  # it has seen the old layout, and waits for the lock
    lock.execute("COMMIT")
    await asyncio.gather(*both)
    assert connection.layout_of(lock, "limpet_") == connection.LAYOUT
    lock.close()


async def test_a_process_of_the_release_before_goes_on_but_another_is_refused(
    path: str, old: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, sync="normal")
    await store.open()
    job = await claimed(old)
    await old.settle("s", 1, [RetryAfter(job.id, job.token, failure(), 0)])
    assert (await old.count()).total(State.ready) == 1
    late = SqliteStore(path)
    with release_before(monkeypatch), pytest.raises(SchemaOutdated, match="layout 3, this release knows 2"):
        await late.open()
    await late.close()
    await store.close()


async def test_jobs_of_the_release_before_are_found_by_flow_and_key(
    path: str, old: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with release_before(monkeypatch):
        await old.enqueue([in_flow(2), in_flow(3)])
    store = SqliteStore(path, sync="normal")
    for term in TERMS:
        assert {job.id for job in (await store.find(Query(terms=(term,)))).jobs} == {in_flow(2).id, in_flow(3).id}
    assert [(flow.id, flow.counts) for flow in await store.flows()] == [(FLOW, {State.ready: 2})]
    await store.close()


async def test_jobs_that_an_older_process_stores_later_run_like_all_others(
    path: str, old: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, sync="normal")
    await store.enqueue([in_flow(2)])
    with monkeypatch.context() as before:
        before.setitem(statements("limpet_"), "job_insert", STORED_BEFORE)
        await old.enqueue([in_flow(3)])
    await store.beat(Beat("s", 15_000, Serves()))
    jobs = (await store.claim(ClaimRequest("s", Serves(), 3, 3, 1))).jobs
    assert {(job.id, job.flow) for job in jobs} == {(JOB.id, None), (in_flow(2).id, FLOW), (in_flow(3).id, FLOW)}
    for term in TERMS:
        assert [job.id for job in (await store.find(Query(terms=(term,)))).jobs] == [in_flow(2).id]
    await store.close()


async def test_effects_that_an_older_process_overlooked_are_not_repeated(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was open before took the job back from a dead worker, without a look at what that had committed."""
    store = SqliteStore(path, sync="normal")
    await store.enqueue([JOB])
    first = await claimed(store, "first")
    conn = library.connect(path)
    assert await store.settle_on(conn, first.id, first.token, b'"first"')
    conn.commit()
    with monkeypatch.context() as before:
        before.setattr(settle, "SETTLED", 0)  # what the release before knows of that bit
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
    reader = library.connect(path)
    assert reader.execute("SELECT count(*) FROM limpet_settled").fetchone() == (0,), "what was noted goes with the end"
    reader.close()
    await store.close()
