"""A database server is killed while it works: what it acknowledged is there, and no success counts twice.

Claims are the exception that the engine allows itself: those of the last moment may be taken back, and their jobs run
again. Their workers then learn that they are late.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from limpet.core.errors import StoreError
from limpet.core.jobs.state import State
from tests.chaos.field import Field, starts_per_job
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, own

pytestmark = pytest.mark.postgres

WORKERS = 3
SLOTS = 4
CRASHES = 3


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """With the settings that it comes with, but for one: what need not be on disk is not, for as long as can be."""
    with own(POSTGRES, wal_writer_delay="10s") as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.url


async def test_whatever_a_killed_database_has_acknowledged_is_there(field: Field, server: PostgresServer) -> None:
    ids: list[bytes] = []
    enough = asyncio.Event()

    async def produce() -> None:
        while not enough.is_set():
            with contextlib.suppress(StoreError):  # not acknowledged
                ids.extend(await field.put("short", {"ms": 30}, 5))
            await asyncio.sleep(0.02)

    for _ in range(WORKERS):
        field.start(ttl_ms=15_000, beat_ms=1_000, sweep_ms=500, concurrency=SLOTS)
    producer = asyncio.create_task(produce())
    await field.until("every worker works", lambda: len({line[4] for line in field.trace("end")}) == WORKERS)
    for _ in range(CRASHES):
        await asyncio.sleep(field.rng.uniform(0.3, 1.0))
        server.kill()
        server.start()
    seen = len(field.trace("end"))
    await field.until("work goes on", lambda: len(field.trace("end")) > seen + 20)
    enough.set()
    await producer

    counts = await field.finished(len(ids))
    await field.until("everything has ended", lambda: nothing_left(field))
    counts = await field.store.count()
    views = await field.views(ids)
    assert len(views) == len(ids), "an acknowledged job is lost"
    assert {view.state for view in views} == {State.succeeded}
    assert counts.succeeded == counts.enqueued, "a success counts twice, or not at all"
    assert counts.enqueued - len(ids) <= 5 * CRASHES  # stored, and the server was killed before it could say so
    again = [n for n in starts_per_job(field.trace("end")).values() if n > 1]
    held = CRASHES * WORKERS * 2 * SLOTS
    assert len(again) <= held
    assert counts.lost == 0, "a worker that lives has lost a job"


async def nothing_left(field: Field) -> bool:
    counts = await field.store.count()
    return not any(counts.total(state) for state in (State.ready, State.scheduled, State.running))
