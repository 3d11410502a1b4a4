"""A stranger locks a table of the store while workers work: they wait, and go on when it is free again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from limpet.core.jobs.state import State
from tests.chaos.field import Field
from tests.chaos.test_chaos import sessions
from tests.chaos.test_outage import RESUMES_S, SLACK_S, end_all, started_more
from tests.servers import postgres
from tests.servers.installations import POSTGRES


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    with postgres.own(POSTGRES) as server:
        yield server


@pytest.fixture
def url(server: postgres.PostgresServer) -> str:
    return server.url


@pytest.mark.postgres
@pytest.mark.matrix("tests/runtime/test_weather.py has a session that ran out in an outage")
@pytest.mark.parametrize("table", ["session", "lease", "receipt", "wait"])
async def test_work_resumes_within_two_seconds_of_a_strangers_table_lock(field: Field, url: str, table: str) -> None:
    """Though it lasted longer than the lease, and beats that were not heard have opened the sessions again."""
    workers = [field.start(ttl_ms=15_000, beat_ms=5_000, concurrency=4) for _ in range(2)]
    await field.until("both are there", partial(sessions, field, 2))
    ids = await field.put("short", {"ms": 100}, 400)
    await field.until("both workers work", lambda: len({line[4] for line in field.trace("end")}) == 2)
    with psycopg.connect(url) as stranger:
        stranger.execute(f"LOCK TABLE limpet.{table} IN ACCESS EXCLUSIVE MODE".encode())
        await asyncio.sleep(21)
        seen = len(field.trace("start"))
        stranger.commit()
    await field.until("work resumes", partial(started_more, field, seen), RESUMES_S + SLACK_S)
    await field.finished(400)
    assert {view.state for view in await field.views(ids)} == {State.succeeded}
    await end_all(workers)
