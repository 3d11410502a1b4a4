"""Wake-ups reach sleepers in every loop of a process, and a lost connection costs no one more than a moment."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from limpet.stores.postgres import wakeup_receiver as receiver_module
from limpet.stores.postgres.url import parse_postgres
from limpet.stores.postgres.wakeup_receiver import FIRST_S
from limpet.stores.server.client import PerLoop
from limpet.stores.waiters import CANCEL, FINISHED, URGENT, WORK, Waiters, wake_of
from tests.engines.postgres.ways import PATIENT, LoneReceiver
from tests.servers.installations import POSTGRES
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import PostgresServer, own, shared

CHANNEL = "CREATE FUNCTION hears.channel_1() RETURNS text LANGUAGE sql AS $$ SELECT 'all-of-them' $$"
JOB = bytes(range(16))
LONG_S = 60.0  # far longer than a wake-up takes; a test that needs it all has failed


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a connection may take seconds: who asks for an address waits for it."""
    monkeypatch.setattr(receiver_module, "FIRST_S", LONG_S)


def prepared(server: PostgresServer) -> PostgresServer:
    """A server with all of the engine that a receiver needs."""
    server.ask("DROP SCHEMA IF EXISTS hears CASCADE")
    server.ask("CREATE SCHEMA hears")
    server.ask(CHANNEL)
    return server


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with own(POSTGRES) as server:
        yield prepared(server)


class Post:
    """A receiver, who sleeps by it, and the way others tell it something."""

    def __init__(self, server: PostgresServer, url: str | None = None, ping_s: float = 15) -> None:
        self.server = server
        self.waiters = Waiters()
        where = parse_postgres(url or f"{server.url}?{PATIENT}")
        self.receivers = PerLoop(lambda: LoneReceiver(where, "hears", self.waiters, ping_s=ping_s))

    def tell(self, *messages: str, to: str | None = None) -> None:
        for message in messages:
            self.server.ask("SELECT pg_notify(%s, %s)", to or self.receivers.here().address, message)

    async def sleep(self, name: bytes, timeout_s: float) -> set[bytes]:
        await self.receivers.here().subscribe()
        return await self.waiters.sleep(name, timeout_s)

    async def told(self, name: bytes, kind: bytes) -> set[bytes]:
        """What is told until it is this."""
        heard: set[bytes] = set()
        async with asyncio.timeout(LONG_S):
            while kind not in heard:
                heard |= await self.waiters.sleep(name, None)
        return heard

    def listeners(self) -> list[int]:
        """The server processes that somebody listens on."""
        query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_notify%%' OR query = 'SELECT 1'"
        return [pid for (pid,) in self.server.ask(f"{query} AND application_name = 'limpet'")]


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    post = Post(prepared(shared(POSTGRES)))
    yield post
    await post.receivers.close()


async def test_a_message_wakes_whom_it_names_with_what_it_says(post: Post) -> None:
    sleeps = [asyncio.create_task(post.sleep(name, LONG_S)) for name in (b"one", b"two", "drei-ü".encode(), JOB)]
    await post.receivers.here().subscribe()
    post.tell("utwo")
    assert await sleeps[1] == {URGENT}
    assert not sleeps[0].done()
    post.tell("wone", "cone", "wdrei-ü", f"f{JOB.hex()}")
    assert await sleeps[0] >= {WORK}
    assert await sleeps[2] == {WORK}
    assert await sleeps[3] == {FINISHED}


async def test_who_gives_the_address_is_heard_from_then_on(post: Post) -> None:
    """Nothing keeps a notification for one who does not listen yet."""
    post.waiters.expect(b"one")
    address = await post.receivers.here().subscribe("one")
    assert address is not None
    post.tell("wone", "cone", to=address)
    assert await post.told(b"one", CANCEL) == {WORK, CANCEL}
    assert await post.waiters.sleep(b"one", 0.05) == set(), "to begin to listen is no reason to wake anybody"


async def test_nonsense_on_the_channel_hurts_nobody(post: Post) -> None:
    post.waiters.expect(b"one")
    await post.receivers.here().subscribe()
    post.tell("", "f", "fxyz", "t", "wnobody", "?one", "wone")
    assert await post.told(b"one", WORK) == {b"?", WORK}


async def test_what_a_foreign_transaction_posts_is_news_for_sessions_and_not_for_watchers(post: Post) -> None:
    for name in (b"one", b"two", b"other loop's", JOB):
        post.waiters.expect(name)
    for session in ("one", "two", "gone"):
        await post.receivers.here().subscribe(session)
    post.tell("p", to="all-of-them")
    assert await post.waiters.sleep(b"one", LONG_S) == {WORK}
    assert await post.waiters.sleep(b"two", 0.1) == {WORK}, "noted, for one who is about to sleep"
    assert await post.waiters.sleep(JOB, 0.05) == set()
    assert await post.waiters.sleep(b"other loop's", 0.05) == set()
    post.tell("pu", to="all-of-them")
    assert await post.waiters.sleep(b"one", LONG_S) == {WORK, URGENT}


async def test_a_sleep_ends_by_its_own_clock(post: Post) -> None:
    start = time.monotonic()
    assert await post.sleep(b"one", 0.1) == set()
    assert 0.1 <= time.monotonic() - start < LONG_S / 2


async def test_after_a_lost_connection_everybody_is_woken_once(server: PostgresServer) -> None:
    """What was told meanwhile is gone."""
    post = Post(server)
    sleeps = [asyncio.create_task(post.sleep(name, LONG_S)) for name in (b"session", b"job")]
    address = await post.receivers.here().subscribe("session")
    await asyncio.sleep(0)
    server.kill()
    server.start()
    for sleep in sleeps:
        assert wake_of(await sleep).work
    assert await post.sleep(b"session", 0.05) == set(), "once is enough"
    assert await post.receivers.here().subscribe() == address, "and the address is the same"
    post.tell("wsession", to=address)
    assert await post.sleep(b"session", LONG_S) == {WORK}
    await post.receivers.close()


async def test_a_connection_that_somebody_cut_is_replaced(server: PostgresServer) -> None:
    post = Post(server)
    sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
    await post.receivers.here().subscribe("one")
    for pid in post.listeners():
        server.ask("SELECT pg_terminate_backend(%s)", pid)
    assert wake_of(await sleeping).work
    await post.receivers.close()


async def interrupted(caplog: pytest.LogCaptureFixture) -> None:
    """Until the receiver says that it has lost its connection, or found none."""
    async with asyncio.timeout(LONG_S):
        while "are interrupted" not in caplog.text:  # noqa: ASYNC110  # a log is no event
            await asyncio.sleep(0.01)


async def test_a_frozen_server_is_noticed(server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    post = Post(server, f"{server.url}?timeout=0.3", ping_s=0.1)
    sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
    await post.receivers.here().subscribe()
    server.freeze()
    await interrupted(caplog)
    server.thaw()
    assert wake_of(await sleeping).work, "the connection was given up, and made again"
    await post.receivers.close()


async def test_a_quiet_server_is_not_given_up(server: PostgresServer) -> None:
    post = Post(server, ping_s=0.05)
    await post.receivers.here().subscribe()
    before = post.listeners()
    assert await post.sleep(b"one", 0.5) == set()
    assert post.listeners() == before
    assert len(before) == 1
    await post.receivers.close()


async def test_a_server_that_is_not_there_is_waited_for_and_then_everybody_is_woken(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post = Post(server, f"{server.url}?timeout=0.3")
    server.kill()
    sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
    await interrupted(caplog)
    server.start()
    assert wake_of(await sleeping).work
    await post.receivers.close()


async def test_sleepers_of_other_loops_and_threads_are_woken(post: Post) -> None:
    woken: list[set[bytes]] = []
    thread = threading.Thread(target=lambda: woken.append(asyncio.run(post.waiters.sleep(b"there", LONG_S))))
    thread.start()
    post.waiters.expect(b"there")
    await post.receivers.here().subscribe("there")
    post.tell("wthere")
    await asyncio.to_thread(thread.join)
    assert woken == [{WORK}]


def test_a_loop_that_ends_leaves_nothing_behind() -> None:
    server = prepared(shared(POSTGRES))
    posts: list[Post] = []

    async def main() -> None:
        posts.append(Post(server, f"{server.url}?application_name=leaves"))
        await posts[0].receivers.here().subscribe("one")

    asyncio.run(main())
    gc.collect()
    deadline = time.monotonic() + LONG_S
    while server.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'leaves'"):
        assert time.monotonic() < deadline


async def test_closing_ends_it_and_hearing_begins_it_again(post: Post) -> None:
    address = await post.receivers.here().subscribe()
    await post.receivers.close()
    again = await post.receivers.here().subscribe()
    assert address != again
    post.waiters.expect(b"one")
    post.tell("wone", to=again)
    assert await post.waiters.sleep(b"one", LONG_S) == {WORK}


# -- where nothing can be heard


async def test_behind_a_pooler_sleepers_look_by_themselves_and_the_fix_is_said_once(
    server: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "POLL_S", 0.2)
    with pooled(server) as pool:
        post = Post(server, f"{pool.url}?{PATIENT}")
        assert await post.receivers.here().subscribe("one") is None, "no address: nobody needs to tell it anything"
        post.waiters.expect(b"one")
        await post.waiters.sleep(b"one", 1)
        for _ in range(3):
            assert wake_of(await post.waiters.sleep(b"one", LONG_S)).work
        assert await post.receivers.here().subscribe("one") is None
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert "listen_url" in warnings[0]
        assert pool.show("CLIENTS")
        await post.receivers.close()


async def test_another_way_to_the_server_is_taken_for_listening(server: PostgresServer) -> None:
    with pooled(server) as pool:
        post = Post(server, f"{pool.url}?{PATIENT}&listen_url=127.0.0.1:{server.port}")
        sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
        address = await post.receivers.here().subscribe("one")
        assert address is not None
        post.tell("wone", to=address)
        assert await sleeping == {WORK}
        await post.receivers.close()


async def test_while_the_other_way_is_shut_sleepers_look_by_themselves(server: PostgresServer) -> None:
    post = Post(server, f"{server.url}?timeout=0.3&listen_url=127.0.0.1:1")
    await post.receivers.here().subscribe("one")
    post.waiters.expect(b"one")
    for _ in range(3):
        assert wake_of(await post.waiters.sleep(b"one", LONG_S)).work
    await post.receivers.close()


async def test_a_way_that_is_shut_holds_up_no_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers there: every attempt to connect takes its whole time."""
    monkeypatch.setattr(receiver_module, "FIRST_S", FIRST_S)
    with socket.create_server(("127.0.0.1", 0)) as door:
        where = parse_postgres(f"postgresql://u@127.0.0.1:{door.getsockname()[1]}/x?{PATIENT}")
        receiver = LoneReceiver(where, "hears", Waiters())
        start = time.monotonic()
        await receiver.subscribe("one")
        assert time.monotonic() - start < LONG_S / 2
        start = time.monotonic()
        for _ in range(10):
            assert await receiver.subscribe("one") is not None
        assert time.monotonic() - start < 9 * FIRST_S
        receiver.drop()
