"""The server is killed, frozen or cut off while stores use it: nobody loses what they hold, nobody waits for long."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest

from limpet import Limpet
from limpet.client.late import EnqueueTimeout
from limpet.core.endings.transition import Succeed
from limpet.core.errors import StoreError, StoreTimeout, StoreUnreachable
from limpet.core.jobs.job import Job, Lane, Policy
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves, Wake
from limpet.core.jobs.state import State
from limpet.stores.base import Store
from limpet.stores.open import open_store
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, own

T = TypeVar("T")

LANE, SERVES = Lane("default", "work"), Serves()
AT_MOST_S = 5.0  # promised for an enqueue, whatever the server does
SLACK_S = 4.0  # of a busy machine, and less than another attempt to connect would take
RESUMES_S = 2.0  # promised, once the server is back


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """Flushed always, so that a kill costs nothing but time; what it costs otherwise is in test_rewind.py."""
    with own(REDIS, aof="always") as server:
        yield server


def jobs(count: int, first: int = 1) -> list[Job]:
    return [Job((first + number).to_bytes(16, "big"), LANE, Policy(), b"{}") for number in range(count)]


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Request until it is answered, as the runtime does."""
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.05)


async def until(what: str, true: Callable[[], bool], within_s: float) -> None:
    """Wait for something to become true; say what never did."""
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s, f"within {within_s} s: {what}"
        await asyncio.sleep(0.01)


class Crew:
    """Sessions that claim, work for a moment and settle, with a janitor beside them; outages do not end them."""

    def __init__(self, store: Store, ttl_ms: int) -> None:
        self.store = store
        self.ttl_ms = ttl_ms
        self.claimed: Counter[bytes] = Counter()
        self.claimed_at_s = 0.0
        self.taken_back = 0
        self.answers: Counter[str] = Counter()

    async def member(self, session: str) -> None:
        for seq in range(1, 1_000_000):
            request = ClaimRequest(session, SERVES, 4, 4, seq)
            claim = await insist(partial(self.store.claim, request))
            self.claimed.update(job.id for job in claim.jobs)
            if claim.jobs:
                self.claimed_at_s = time.monotonic()
            await asyncio.sleep(0.1)
            ends = [Succeed(job.id, job.token) for job in claim.jobs]
            if ends:
                settled = await insist(partial(self.store.settle, session, seq, ends))
                self.answers.update(each.answer for each in settled)

    async def keeper(self, session: str) -> None:
        while True:
            pulse = await insist(lambda: self.store.beat(Beat(session, self.ttl_ms, SERVES)))
            self.answers["fresh"] += pulse.fresh
            await asyncio.sleep(self.ttl_ms / 5_000)

    async def janitor(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            self.taken_back += await insist(self.store.expire)

    async def work(self, sessions: int) -> None:
        names = [f"s{number}" for number in range(sessions)]
        await self.store.expire()  # a store that was never swept does not know how long it was away
        for name in names:
            await self.store.beat(Beat(name, self.ttl_ms, SERVES))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.janitor())
            for name in names:
                group.create_task(self.keeper(name))
                group.create_task(self.member(name))


# Three seconds under the default lease; and an outage that outlives everybody's lease, after which none may end (D6).
@pytest.mark.parametrize(
    ("outage_s", "ttl_ms"),
    [
        (3.0, 15_000),
        pytest.param(6.0, 3_000, marks=pytest.mark.matrix("the contract has sweeps after a gap")),
    ],
)
async def test_a_kill_of_the_server_takes_no_job_from_anybody_and_work_resumes_within_two_seconds(
    server: RedisServer, store: Store, outage_s: float, ttl_ms: int
) -> None:
    await store.enqueue(jobs(1_000))
    crew = Crew(store, ttl_ms)
    working = asyncio.create_task(crew.work(5))
    await until("work has begun", lambda: crew.claimed.total() > 60, within_s=60)
    server.kill()
    await asyncio.sleep(outage_s)
    back_s = time.monotonic()
    server.start()
    await until("work resumes", lambda: crew.claimed_at_s > back_s, within_s=RESUMES_S + SLACK_S)
    await until("all is done", lambda: crew.answers["done"] == 1_000, within_s=60)
    working.cancel()
    await asyncio.wait([working])
    assert crew.taken_back == 0
    assert set(crew.claimed.values()) == {1}, "jobs were given out twice"
    assert crew.answers == {"done": 1_000, "fresh": 0}, "a session was forgotten, or a settlement refused"
    counts = await store.count()
    assert (counts.succeeded, counts.lost, counts.stale) == (1_000, 0, 0)


async def test_enqueue_on_a_silent_server_answers_in_time_and_a_retry_is_the_same_job(
    server: RedisServer, store: Store
) -> None:
    await store.enqueue(jobs(1))
    server.freeze()
    asked_s = time.monotonic()
    with pytest.raises((StoreTimeout, StoreUnreachable)):
        await store.enqueue(jobs(1, first=2))
    assert time.monotonic() - asked_s < AT_MOST_S + SLACK_S
    server.thaw()
    await store.enqueue(jobs(1, first=2))
    await store.enqueue(jobs(1, first=2))
    counts = await store.count()
    assert (counts.enqueued, counts.total(State.ready)) == (2, 2)


async def test_enqueue_on_a_server_that_was_silent_from_the_start_answers_in_time(server: RedisServer) -> None:
    server.freeze()
    store = open_store(server.url)
    asked_s = time.monotonic()
    with pytest.raises((StoreTimeout, StoreUnreachable)):
        await store.enqueue(jobs(1))
    assert time.monotonic() - asked_s < AT_MOST_S + SLACK_S
    server.thaw()
    await store.enqueue(jobs(1))
    assert (await store.count()).enqueued == 1
    await store.close()


async def test_enqueue_on_a_server_that_is_down_answers_in_time(server: RedisServer, store: Store) -> None:
    await store.enqueue(jobs(1))
    server.kill()
    asked_s = time.monotonic()
    with pytest.raises((StoreTimeout, StoreUnreachable)) as caught:
        await store.enqueue(jobs(1, first=2))
    assert time.monotonic() - asked_s < AT_MOST_S + SLACK_S
    assert caught.value.verb == "enqueue"
    server.start()
    assert [each.existing for each in await store.enqueue(jobs(2))] == [True, False]


async def test_an_app_on_a_silent_server_names_the_job_and_asking_again_with_its_id_is_the_same(
    server: RedisServer,
) -> None:
    app = Limpet(server.url)

    @app.task(name="greet")
    async def greet(name: str) -> None: ...

    async with app:
        await greet.enqueue("Ada")
        server.freeze()
        asked_s = time.monotonic()
        with pytest.raises((EnqueueTimeout, StoreTimeout, StoreUnreachable)) as caught:
            await greet.enqueue("Bob")
        assert time.monotonic() - asked_s < AT_MOST_S + SLACK_S
        server.thaw()
        assert isinstance(caught.value, EnqueueTimeout)
        (id,) = caught.value.ids
        job = await greet.options(id=id).enqueue("Bob")
        assert job.id == id
        assert (await app.store.count()).enqueued == 2


async def test_a_claim_and_a_settlement_that_a_silent_server_did_all_the_same_are_answered_again(
    server: RedisServer,
) -> None:
    store = open_store(f"{server.url}?timeout=1")
    await store.enqueue(jobs(5))
    await store.beat(Beat("s", 15_000, SERVES))
    request = ClaimRequest("s", SERVES, 3, 3, 1)
    server.freeze()
    with pytest.raises((StoreTimeout, StoreUnreachable)):
        await store.claim(request)
    server.thaw()
    claim = await store.claim(request)
    assert len(claim.jobs) == 3
    assert (await store.count()).total(State.running) == 3, "a claim whose answer got lost must not be made twice"
    ends = [Succeed(job.id, job.token) for job in claim.jobs]
    server.freeze()
    with pytest.raises((StoreTimeout, StoreUnreachable)):
        await store.settle("s", 1, ends)
    server.thaw()
    assert [each.answer for each in await store.settle("s", 1, ends)] == ["done"] * 3
    counts = await store.count()
    assert (counts.succeeded, counts.stale) == (3, 0)
    await store.close()


async def sleeper(store: Store, *, seq: int = 1) -> asyncio.Task[Wake]:
    """A session that found nothing and sleeps."""
    await store.beat(Beat("sleeper", 60_000, SERVES))
    claim = await store.claim(ClaimRequest("sleeper", SERVES, 1, 1, seq))
    assert claim.jobs == ()
    sleeping = asyncio.create_task(insist(lambda: store.wait("sleeper", 30_000)))
    await asyncio.sleep(0.1)
    return sleeping


async def test_a_sleeper_whose_server_was_killed_is_woken_by_what_comes_after(
    server: RedisServer, store: Store
) -> None:
    sleeping = await sleeper(store)
    server.kill()
    await asyncio.sleep(1)
    server.start()
    await store.enqueue(jobs(1))
    async with asyncio.timeout(RESUMES_S + SLACK_S):
        # An early wake is allowed, since a wake-up may have got lost; it must find the job all the same.
        await sleeping
        while not (await store.claim(ClaimRequest("sleeper", SERVES, 1, 1, int(time.monotonic() * 1e6)))).jobs:
            await insist(lambda: store.wait("sleeper", 30_000))


async def test_connections_that_are_cut_are_made_again_and_sleepers_hear_of_work(
    server: RedisServer, store: Store
) -> None:
    """As load balancers cut what was idle for too long."""
    sleeping = await sleeper(store)
    server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    await store.enqueue(jobs(1))  # without an error: nothing was under way
    async with asyncio.timeout(RESUMES_S + SLACK_S):
        await sleeping
        while not (await store.claim(ClaimRequest("sleeper", SERVES, 1, 1, int(time.monotonic() * 1e6)))).jobs:
            await insist(lambda: store.wait("sleeper", 30_000))


async def test_a_server_that_lost_its_scripts_is_given_them_again(server: RedisServer, store: Store) -> None:
    await store.enqueue(jobs(1))
    server.ask("SCRIPT", "FLUSH")
    await store.enqueue(jobs(1, first=2))
    assert (await store.count()).enqueued == 2
