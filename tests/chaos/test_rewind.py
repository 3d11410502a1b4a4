"""The store comes back in an older state while workers work: what had ended since runs again, and nothing is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from limpet.core.jobs.state import State
from tests.chaos.field import Field
from tests.chaos.test_chaos import sessions
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, own

pytestmark = pytest.mark.redis


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Without a log: it comes back as it was at its last SAVE."""
    with own(REDIS) as server:
        yield server


@pytest.fixture
def url(server: RedisServer) -> str:
    return server.url


async def test_jobs_whose_end_was_rewound_are_not_held_for_ever_by_workers_that_know_nothing_of_them(
    field: Field, server: RedisServer
) -> None:
    for _ in range(2):
        field.start(ttl_ms=5_000, beat_ms=1_000, sweep_ms=500, concurrency=4)
    await field.until("both are there", partial(sessions, field, 2))
    ids = await field.put("short", {"ms": 100}, 300)
    await field.until("both workers work", lambda: len({line[4] for line in field.trace("end")}) == 2)
    server.ask("SAVE")
    await asyncio.sleep(1)
    server.kill()
    server.start()
    await field.finished(300)
    assert {view.state for view in await field.views(ids)} == {State.succeeded}
