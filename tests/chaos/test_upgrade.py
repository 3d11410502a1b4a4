"""A busy schema is upgraded: workers and producers of this release go on beside those of a made-up next one."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from limpet.core.jobs.ids import id_bytes
from limpet.core.jobs.state import State
from tests.chaos import shop
from tests.chaos.field import ROOT, Field, WorkerProcess, kill, thaw
from tests.engines.postgres.audit import faults
from tests.engines.postgres.next_release import NEXT, THIS, ask_limpet, limpet, make_next
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.postgres

SOME = 40  # effects: enough that every kind of job is among them
LEASE_MS = 6_000  # none that lives may lose it, however busy the machine is
# It has been in use for a while: nobody loses a lease within 15 s after the first sweep of all.
SWEPT = "UPDATE limpet.sweep SET swept_at_ms = extract(epoch FROM now()) * 1000"
# What the server may say of it.
EXPECTED = {
    "canceling statement due to lock timeout",  # an upgrade that would make others wait tries again later
    "canceling statement due to user request",  # a worker that is told to stop while it asks
    "connection to client lost",  # the one that was killed
}
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
SINCE = "SELECT count(*) FROM effect WHERE source = %s AND at > %s"


@pytest.fixture
def url(database: PostgresServer) -> str:
    return database.url


@pytest.fixture
def books(database: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """What the shop has written down."""
    with closing(psycopg.connect(database.url, autocommit=True)) as line:
        line.execute(shop.TABLES)
        yield line


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The source of the next release."""
    return make_next(tmp_path / "next")


@pytest.mark.timeout(900)
async def test_workers_of_this_release_work_on_while_the_schema_is_upgraded_to_the_next(
    field: Field, database: PostgresServer, books: psycopg.Connection[Any], new: Path, tmp_path: Path
) -> None:
    field.errors = tmp_path / "errors"
    field.errors.touch()
    hire = partial(field.start, app="tests.chaos.shop:app", ttl_ms=LEASE_MS)
    order = partial(field.run, "-m", "tests.chaos.shop")
    limpet(ROOT, "migrate", "--url", field.url)
    books.execute(SWEPT)
    refused(new, field.url)
    workers = [hire(source=ROOT), hire(source=ROOT)]
    producers = [order(source=ROOT)]
    await field.until("this release works", partial(has_worked, books, ROOT, since="-infinity"))

    await upgraded_amid_claims(field, new)
    upgraded_at = now(books)
    await field.until("this release works on", partial(has_worked, books, ROOT, since=upgraded_at))

    workers.append(hire(source=new))
    producers.append(order(source=new))
    await field.until("the next one works, too", partial(has_worked, books, new, since=upgraded_at))

    killed = workers.pop(0)
    await field.until("a worker was killed with jobs in its hands", partial(killed_at_work, field, killed))
    workers.append(hire(source=ROOT))  # as when its machine comes back, not upgraded yet
    killed_at = now(books)
    await field.until("the machine is back", partial(field.lives, workers[-1]))
    for source in (ROOT, new):
        await field.until("both go on", partial(has_worked, books, source, since=killed_at))

    assert await ended(producers) == [0] * len(producers)
    (ordered,) = books.execute("SELECT count(DISTINCT job) FROM ordered").fetchone() or (0,)
    await field.finished(ordered)
    assert await ended(workers) == [0] * len(workers)
    await everything_happened_once(field, books)
    assert {THIS, NEXT} <= {release for (release,) in books.execute("SELECT release FROM limpet.handout")}
    assert faults(database, "limpet") == []
    assert field.errors.read_text() == ""
    assert set(re.findall(r" (?:ERROR|FATAL|PANIC):  (.*)", database.log())) <= EXPECTED


def refused(new: Path, url: str) -> None:
    """The next release leaves the older schema alone, and says what to do."""
    answer = ask_limpet(new, "jobs", "--url", url)
    assert answer.returncode != 0
    assert "limpet migrate" in answer.stderr


async def upgraded_amid_claims(field: Field, new: Path) -> None:
    """Claims of this release have begun before the upgrade, and go on after it: old text that calls new text."""
    with closing(psycopg.connect(field.url)) as floor:
        floor.execute("SELECT limpet.lock(1)")
        await field.until("two claims are under way", lambda: (floor.execute(WAITING).fetchone() or (0,))[0] >= 2)
        upgrade = asyncio.create_task(asyncio.to_thread(limpet, new, "migrate", "--url", field.url))
        await asyncio.wait([upgrade], timeout=3)  # one that needs a table for itself gets it when those are over
    await upgrade


async def everything_happened_once(field: Field, books: psycopg.Connection[Any]) -> None:
    """What was acknowledged has succeeded, and its effect is there: twice only where a kill came between the two."""
    ordered = {job for (job,) in books.execute("SELECT job FROM ordered")}
    effects = books.execute("SELECT job, task FROM effect").fetchall()
    times = Counter(job for job, _ in effects)
    views = {view.id: view for view in await field.views([id_bytes(job) for job in ordered])}
    assert len(views) == len(ordered), "lost"
    assert {view.state for view in views.values()} == {State.succeeded}
    assert set(times) == ordered, "done without being ordered, or the other way round"
    assert {times[job] for job, task in effects if task == "pay"} == {1}
    more = {job for job, number in times.items() if number > 1 + views[id_bytes(job)].lost}
    assert not more, "done again for no reason"
    counts = await field.store.count()
    assert (counts.enqueued, counts.succeeded, counts.stale) == (len(ordered), len(ordered), 0)


def has_worked(books: psycopg.Connection[Any], source: Path, *, since: object) -> bool:
    """True when workers of a release have done some jobs since."""
    row = books.execute(SINCE, (str(source), since)).fetchone()
    assert row is not None
    return int(row[0]) >= SOME


def now(books: psycopg.Connection[Any]) -> object:
    row = books.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0]


async def killed_at_work(field: Field, worker: WorkerProcess) -> bool:
    """Stop it, and kill it if it runs jobs; else it goes on."""
    tree = worker.tree()
    for pid in tree:
        kill(pid, signal.SIGSTOP)
    at_work = any(view.running and f":{worker.pid}:" in view.session for view in await field.store.sessions())
    for pid in tree if at_work else ():
        kill(pid)
    thaw(tree)
    return at_work


async def ended(programs: list[WorkerProcess]) -> list[int]:
    """Stopped as one stops them, and their exit codes."""
    for program in programs:
        program.signal(signal.SIGTERM)
    return [await program.ended() for program in programs]
