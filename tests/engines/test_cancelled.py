"""Whoever cancels all tasks of a loop that a store shares, in a handler for example, does not cut it off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.stores.base import Store
from limpet.stores.open import open_store
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES

SERVES = Serves(("default",), ("t",))


@pytest.fixture(
    params=[pytest.param("redis", marks=pytest.mark.redis), pytest.param("postgres", marks=pytest.mark.postgres)]
)
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores on one server, as two programs have them; the first of them has not spoken to it."""
    with redis.own(REDIS) if request.param == "redis" else postgres.own(POSTGRES) as server:
        ours, theirs = open_store(server.url), open_store(server.url)
        await theirs.count()
        yield ours, theirs
        await ours.close()
        await theirs.close()


async def cancel_all_but(*own: asyncio.Task[object] | None) -> int:
    """Cancel every task of somebody else's that shows itself while the loop turns a few times; how many there were."""
    found = 0
    for _ in range(50):
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - set(own) - {asyncio.current_task()}:
            found += task.cancel()
    return found


async def test_connections_that_are_cancelled_while_they_open_are_opened_again(stores: tuple[Store, Store]) -> None:
    ours, theirs = stores
    around = asyncio.all_tasks()
    beating = asyncio.create_task(ours.beat(Beat("sleeper", 60_000, SERVES)))
    assert await cancel_all_but(beating, *around)
    async with asyncio.timeout(60):
        assert (await beating).fresh

    await ours.claim(ClaimRequest("sleeper", SERVES, 1, 1, 1))
    sleeping = asyncio.create_task(ours.wait("sleeper", 90_000))
    await cancel_all_but(sleeping, *around)  # on some engines the connection on which it hears of work
    async with asyncio.timeout(60):
        await theirs.enqueue([Job(IdMaker().make(1_000), Lane("default", "t"), Policy(), b"{}")])
        assert (await sleeping).work
