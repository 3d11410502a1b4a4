"""An enqueue on a server that refuses connections tries until its deadline; then it knows that nothing is stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from limpet import EnqueueTimeout, Limpet, NotStored, StoreUnreachable, group
from limpet.app import Limpet as App
from limpet.client.task import AsyncTask
from limpet.core.jobs.ids import id_bytes
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.process import fresh_folder

Server = redis.RedisServer | postgres.PostgresServer

pytestmark = [
    pytest.mark.redis,
    pytest.mark.postgres,
    pytest.mark.parametrize("server", ["redis", "postgres"], indirect=True),
]

SOON_S = 0.5
PATIENCE_S = 60


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that is down, and nobody else on its port."""
    made: Server
    if request.param == "redis":
        made = redis.RedisServer(REDIS, fresh_folder("limpet-redis-"))
    else:
        made = postgres.PostgresServer(POSTGRES)
    made.start()
    made.stop()
    yield made
    made.discard()


@pytest.fixture
async def app(server: Server) -> AsyncIterator[Limpet]:
    app = App(server.url, enqueue_timeout=SOON_S)
    yield app
    await app.close()


def declare(app: Limpet) -> AsyncTask[[int], None]:
    @app.task(name="greet")
    async def greet(number: int) -> None: ...

    return greet


async def test_refused_until_the_deadline_is_not_stored(app: Limpet, server: Server) -> None:
    greet = declare(app)
    asked_s = time.monotonic()
    with pytest.raises(NotStored, match="is not stored") as caught:
        await greet.enqueue(1)
    assert time.monotonic() - asked_s >= SOON_S * 0.9, "it gave up at the first refusal"
    assert f"127.0.0.1:{server.port}" in str(caught.value)
    assert caught.value.code == "store_unreachable"
    with pytest.raises(NotStored, match="3 jobs are not stored"):
        await app.enqueue_many([greet.job(number) for number in range(3)])
    with pytest.raises(StoreUnreachable, match="nothing was stored"):
        await app.enqueue("elsewhere", {})
    with pytest.raises(NotStored, match="2 jobs are not stored"):
        await group([greet.job(1), greet.job(2)]).enqueue()
    server.start()
    assert (await app.store.count()).enqueued == 0


async def test_refusals_are_ridden_over_until_the_deadline(server: Server) -> None:
    app = App(server.url, enqueue_timeout=PATIENCE_S)
    greet = declare(app)
    asking = asyncio.create_task(greet.enqueue(1))
    await asyncio.wait({asking}, timeout=0.2)
    assert not asking.done()
    server.start()
    assert (await asking).existing is False
    await app.close()


async def test_what_was_said_not_to_be_stored_is_not_stored_later_with_its_neighbours(
    app: Limpet, server: Server
) -> None:
    """Two callers share one call, and the server comes between their deadlines."""
    greet = declare(app)
    early, *patient = [asyncio.create_task(greet.enqueue(number)) for number in (1, 2, 3)]
    for _ in range(3):  # turns of the loop: they ask, and one call takes all
        await asyncio.sleep(0)
    (batcher,) = app._client.producer._batchers.values()
    rest = batcher._plain._under_way[1:]
    assert len(rest) == 2
    for pending in rest:  # only the first has no time left
        pending.until_s += PATIENCE_S
    with pytest.raises(NotStored) as caught:
        await early
    server.start()
    handles = await asyncio.gather(*patient)
    (said,) = caught.value.ids
    found = await app.store.get([id_bytes(said), *(id_bytes(handle.id) for handle in handles)])
    assert [view is None for view in found] == [True, False, False]


async def test_a_server_that_took_it_and_fell_silent_may_have_stored_it(app: Limpet, server: Server) -> None:
    greet = declare(app)
    server.start()
    await app.store.open()  # which makes the tables, and takes a while on a busy machine
    await app.store.count()
    server.freeze()
    with pytest.raises(EnqueueTimeout, match="may be stored or not"):
        await greet.enqueue(1)
    server.thaw()
