"""A loop that asks little asks over the connection of the loop that keeps its session, which also listens."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from limpet.core.errors import StoreTimeout
from limpet.core.jobs.lease import Beat, ClaimRequest, Serves
from limpet.stores.postgres import client as client_module
from limpet.stores.postgres.client import Client
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.postgres.url import PostgresUrl, parse_postgres
from limpet_contract.making import make_job
from tests.engines.postgres.ways import PATIENT, PID, SLEEP, WAIT, held, pid, until, until_waiting
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer, fresh_database, own, shared

SESSION = "kept"
SERVES = Serves(("default",), None)


class Keeper:
    """A loop in a thread of its own, as that of a worker's heartbeat."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clients: list[Client] = []
        self._still, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        self._still.set()
        self._ends.wait()
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for each in self.clients:
            each.drop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    async def does(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """What the call answers in that loop."""

        async def do() -> Any:
            return await call()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(do(), self.loop))

    async def client(self, url: PostgresUrl) -> Client:
        """A client of that loop, which ends with it."""

        async def made() -> Client:
            self.clients.append(Client(url, "limpet"))
            return self.clients[-1]

        answer = await self.does(made)
        assert isinstance(answer, Client)
        return answer

    async def drop(self) -> None:
        """Let go of the connections, and go on."""

        async def drop() -> None:
            for each in self.clients:
                each.drop()

        await self.does(drop)

    def stop(self) -> None:
        """Stand still, and stay open."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._still.wait()

    def close(self) -> None:
        if not self._still.is_set():
            self.stop()
        self._ends.set()
        self._thread.join()


@contextmanager
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    try:
        yield made
    finally:
        made.close()


def connections(server: PostgresServer, name: str) -> int:
    ((count,),) = server.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", name)
    assert isinstance(count, int)
    return count


class Pair:
    """A client in this loop, and one in another that lends it connections."""

    def __init__(self, server: PostgresServer, keeping: Keeper, here: Client, there: Client, name: str) -> None:
        self.server = server
        self.keeping = keeping
        self.here = here
        self.there = there
        self.name = name

    async def pid_there(self) -> int:
        answer = await self.keeping.does(lambda: pid(self.there))
        assert isinstance(answer, int)
        return answer

    def open(self) -> int:
        return connections(self.server, self.name)


@pytest.fixture
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    server = shared(POSTGRES)
    name = f"pair-{os.urandom(4).hex()}"
    url = parse_postgres(f"{server.url}?{PATIENT}&application_name={name}")
    with keeper() as keeping:
        there, here = await keeping.client(url), Client(url, "limpet")
        await pid(here)
        here.borrow_of(there)
        yield Pair(server, keeping, here, there, name)
        here.drop()


async def test_who_asks_little_asks_over_the_connection_of_the_other_loop(pair: Pair) -> None:
    there = await pair.pid_there()
    assert {await pid(pair.here) for _ in range(5)} == {there}
    await until(lambda: pair.open() == 1)


async def ask_much(client: Client) -> None:
    """Far more than thirty calls in a second, however busy the machine is: they begin together."""
    await asyncio.gather(*(client.row(PID, verb="test") for _ in range(100)))


async def test_who_asks_much_gets_connections_of_its_own_and_gives_them_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await pair.pid_there()
    monkeypatch.setattr(client_module, "CALM_S", 3_600.0)
    async with asyncio.timeout(60):
        while await pid(pair.here) == there:  # until its own is open
            await ask_much(pair.here)
    pair.here._rate.rest()  # as if an hour had passed
    async with asyncio.timeout(60):
        while pair.open() > 1:  # one that was still opening is given back by the next call
            assert await pid(pair.here) == there


async def test_who_asks_much_of_a_full_server_goes_on_over_the_one_connection() -> None:
    with own(POSTGRES, max_connections=4, superuser_reserved_connections=0) as server, keeper() as keeping:
        url = parse_postgres(f"{server.url}?{PATIENT}")
        here = Client(url, "limpet")
        here.borrow_of(await keeping.client(url))
        assert await pid(here)
        others = [Client(url, "limpet") for _ in range(3)]
        for other in others:
            await pid(other)
        for _ in range(5):
            async with asyncio.timeout(30):
                await ask_much(here)
        for each in (here, *others):
            each.drop()


async def test_what_may_take_long_goes_over_a_connection_of_its_own(pair: Pair) -> None:
    there = await pair.pid_there()
    ((number,),) = await pair.here.rows(PID, verb="test", timeout_s=60.0)
    assert number != there
    assert await pid(pair.here) == there


async def test_a_call_that_waits_for_a_lock_holds_up_neither_loop(pair: Pair) -> None:
    await pair.pid_there()
    with held(pair.server):
        waiting = asyncio.create_task(pair.here.row(WAIT, verb="test"))
        await until_waiting(pair.server, 1)
        assert await pair.pid_there()
        assert await pid(pair.here)
        assert not waiting.done()
    await waiting
    await until(lambda: pair.open() == 1)
    assert pair.there.pool.reach.reconnects == 0


async def test_a_caller_that_goes_away_stops_what_had_not_been_sent(pair: Pair) -> None:
    with held(pair.server):
        busy = [asyncio.create_task(pair.here.row(WAIT, verb="test")) for _ in range(4)]
        await until_waiting(pair.server, 4)
        late = asyncio.create_task(pair.here.row("SELECT pg_notify('gone', ''), pg_sleep(600)", verb="test"))
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
    await asyncio.gather(*busy)
    assert not pair.server.ask("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify(''gone''%%'")


async def test_when_the_other_loop_ends_its_own_connections_do(pair: Pair) -> None:
    there = await pair.pid_there()
    slow = asyncio.create_task(pair.here.row(SLEEP, (0.3,), verb="test"))
    await until(lambda: pair.server.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
    await pair.keeping.drop()
    await slow  # asked again
    assert await pid(pair.here) != there
    pair.keeping.close()
    assert await pid(pair.here)


async def test_a_loop_that_stands_still_is_left_after_one_call(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.pid_there()
    monkeypatch.setattr(client_module, "HEARD_S", -59.9)
    pair.keeping.stop()
    with pytest.raises(StoreTimeout):
        await pid(pair.here)
    since_s = time.monotonic()
    assert await pid(pair.here)
    assert time.monotonic() - since_s < 30


class Errands(set[asyncio.Task[Any]]):
    """Remembers that there was one: it may end before another thread looks."""

    begun = False

    def add(self, errand: asyncio.Task[Any]) -> None:
        super().add(errand)
        self.begun = True


async def test_a_loop_that_stood_still_itself_blames_no_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    there = await pair.pid_there()
    monkeypatch.setattr(client_module, "HEARD_S", -59.9)
    monkeypatch.setattr(pair.there, "_errands", errands := Errands())
    asking = asyncio.create_task(pid(pair.here))
    while not errands.begun:  # noqa: ASYNC110  # until the call is under way
        await asyncio.sleep(0)
    until_s = time.monotonic() + 60
    while errands or time.monotonic() < until_s - 59.5:
        assert time.monotonic() < until_s  # the answer is there, and so is the end of its time
    assert await asking == there
    assert await pid(pair.here) == there


# -- as workers use it


@pytest.fixture
def url() -> str:
    return fresh_database(shared(POSTGRES))


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(parse_postgres(f"{url}?{PATIENT}&application_name=worker-alone"))
    await store.migrate(lambda step: None)
    yield store
    await store.close()


async def test_a_worker_that_is_idle_holds_one_connection_and_is_woken_on_it(store: PostgresStore, url: str) -> None:
    server = shared(POSTGRES)
    with keeper() as keeping:
        await keeping.does(lambda: store.beat(Beat(SESSION, 600_000, SERVES, b"{}")))
        seq = 0

        async def claim() -> int:
            nonlocal seq
            seq += 1
            return len((await store.claim(ClaimRequest(SESSION, SERVES, limit=1, slots=1, seq=seq))).jobs)

        while await claim():
            pass
        await until(lambda: connections(server, "worker-alone") == 1)
        sleeping = asyncio.create_task(store.wait(SESSION, 60_000))
        other = PostgresStore(parse_postgres(url))
        await other.enqueue([make_job(b"1" * 16, {})])
        assert (await sleeping).work
        assert await claim() == 1
        assert connections(server, "worker-alone") == 1
        await other.close()
        await store.leave(SESSION)
        await store.close()
        await asyncio.sleep(0)
