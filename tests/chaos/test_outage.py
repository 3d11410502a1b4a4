"""The store itself goes away while workers work: they stay, and go on when it is back, as if it had been weather."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from limpet.core.jobs.state import State
from tests.chaos.field import Field, WorkerProcess, starts_per_job
from tests.chaos.test_chaos import sessions
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES

Server = redis.RedisServer | postgres.PostgresServer

JOBS = 600
RESUMES_S = 2.0  # promised
SLACK_S = 6.0  # of a busy machine, and less than the lease after which others would have gone on
# So that an outage costs nothing but time; what it costs otherwise is in test_rewind.py and test_crash.py.
SERVERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    "redis": lambda: redis.own(REDIS, aof="always"),
    "postgres": lambda: postgres.own(POSTGRES),
}
# The outages: three seconds under the default lease, and one that outlives the leases of everybody (D6).
WEATHER = [
    ("redis", 3.0, 15_000),
    ("postgres", 3.0, 15_000),
    pytest.param("redis", 7.0, 5_000, marks=pytest.mark.matrix("the contract has sweeps after a gap")),
]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    """Only a store that is a process of its own can be killed alone."""
    return server.url


@pytest.mark.parametrize(("server", "outage_s", "lease_ms"), WEATHER, indirect=["server"])
async def test_workers_outlive_a_kill_of_the_store_and_resume_within_two_seconds(
    field: Field, server: Server, outage_s: float, lease_ms: int
) -> None:
    workers = [field.start(ttl_ms=lease_ms, beat_ms=lease_ms // 5, sweep_ms=500, concurrency=4) for _ in range(3)]
    await field.until("all are there", partial(sessions, field, 3))
    ids = await field.put("short", {"ms": 150}, JOBS)
    await field.until("every worker works", lambda: len({line[4] for line in field.trace("end")}) == 3)
    before = [worker.tree() for worker in workers]
    await asyncio.sleep(1)  # a store that was never swept does not know how long it was away

    go_away(server)
    await asyncio.sleep(outage_s)
    seen = len(field.trace("start"))
    server.start()
    await field.until("work resumes", partial(started_more, field, seen), RESUMES_S + SLACK_S)

    counts = await field.finished(JOBS)
    assert [worker.tree() for worker in workers] == before, "a process has ended"
    assert {view.state for view in await field.views(ids)} == {State.succeeded}
    assert (counts.lost, counts.stale) == (0, 0)
    assert set(starts_per_job(field.trace("start")).values()) == {1}, "jobs ran twice"
    await end_all(workers)


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_a_frozen_store_is_weather_too(field: Field, server: Server) -> None:
    workers = [field.start(ttl_ms=15_000, beat_ms=1_000, concurrency=4) for _ in range(2)]
    await field.until("both are there", partial(sessions, field, 2))
    ids = await field.put("short", {"ms": 100}, 200)
    await field.until("both workers work", lambda: len({line[4] for line in field.trace("end")}) == 2)
    before = [worker.tree() for worker in workers]
    server.freeze()
    await asyncio.sleep(3)
    seen = len(field.trace("start"))
    server.thaw()
    await field.until("work resumes", partial(started_more, field, seen), RESUMES_S + SLACK_S)
    counts = await field.finished(200)
    assert [worker.tree() for worker in workers] == before
    assert {view.state for view in await field.views(ids)} == {State.succeeded}
    assert (counts.lost, counts.stale) == (0, 0)
    assert set(starts_per_job(field.trace("start")).values()) == {1}
    await end_all(workers)


def go_away(server: Server) -> None:
    """As hard as it can without taking back what it has answered: Redis is killed, PostgreSQL sends everybody away."""
    if isinstance(server, redis.RedisServer):
        server.kill()
    else:
        server.stop()


async def end_all(workers: list[WorkerProcess]) -> None:
    """Workers that came through an outage still stop as asked."""
    for worker in workers:
        worker.process.terminate()
    assert [await worker.ended() for worker in workers] == [0] * len(workers)


def started_more(field: Field, seen: int) -> bool:
    """True when a job was started since."""
    return len(field.trace("start")) > seen
