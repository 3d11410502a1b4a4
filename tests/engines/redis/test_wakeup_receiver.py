"""Wake-ups reach sleepers in every loop of a process, and a lost connection costs no one more than a moment."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from limpet.stores.redis import wakeup_receiver
from limpet.stores.redis.url import parse_redis
from limpet.stores.redis.wakeup_receiver import WakeupReceiver
from limpet.stores.server.client import PerLoop
from limpet.stores.waiters import CANCEL, FINISHED, GONE_S, MANY, URGENT, WORK, Waiters, wake_of
from tests.servers.flavours import REDIS
from tests.servers.fleet import until
from tests.servers.redis import RedisServer, running

TAG = "limpet:x"
LONG_S = 60.0  # far longer than a wake-up takes; a test that needs it all has failed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(RedisServer(REDIS, tmp_path)) as server:
        yield server


class Post:
    """A receiver, its sleepers, and a way to send to its mailbox."""

    def __init__(self, server: RedisServer, wait_s: float = LONG_S) -> None:
        self.server = server
        self.waiters = Waiters()
        self.receivers = PerLoop(lambda: WakeupReceiver(parse_redis(server.url), TAG, self.waiters, wait_s=wait_s))

    @property
    def key(self) -> str:
        return f"{{{TAG}}}:mb:{self.receivers.here().address}"

    def tell(self, *messages: bytes) -> None:
        self.server.ask("RPUSH", self.key, *messages)

    async def sleep(self, name: bytes, timeout_s: float) -> set[bytes]:
        self.receivers.here().listen()
        return await self.waiters.sleep(name, timeout_s)

    async def heard(self) -> None:
        """Until somebody waits on the list."""
        await self.until(lambda: b"cmd=blpop" in self.server.ask("CLIENT", "LIST"))

    async def asked(self, times: int) -> None:
        """Until the server was asked so often for what there is."""
        calls = re.compile(rb"cmdstat_blpop:calls=(\d+)")  # Valkey leaves a command out until its first answer
        await self.until(lambda: sum(map(int, calls.findall(self.server.ask("INFO", "commandstats")))) >= times)

    async def until(self, true: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LONG_S
        while not true():
            assert time.monotonic() < deadline_s, "nobody listens"
            await asyncio.sleep(0.01)


@pytest.fixture
async def post(server: RedisServer) -> AsyncIterator[Post]:
    post = Post(server)
    yield post
    await post.receivers.close()


async def test_a_message_wakes_whom_it_names_with_what_it_says(post: Post) -> None:
    sleeps = [asyncio.create_task(post.sleep(name, LONG_S)) for name in (b"one", b"two", b"three")]
    await post.heard()
    post.tell(URGENT + b"two")
    assert await sleeps[1] == {URGENT}
    assert not sleeps[0].done()
    post.tell(WORK + b"one", CANCEL + b"one", WORK + b"three")
    assert await sleeps[0] >= {WORK}
    assert await sleeps[2] == {WORK}


async def test_what_was_told_before_anybody_listened_is_heard(post: Post) -> None:
    others = [b"other %d" % number for number in range(250)]
    for name in others:
        post.waiters.expect(name)
    post.tell(WORK + b"one", *(WORK + name for name in others))
    assert await post.sleep(b"one", LONG_S) == {WORK}
    for name in others:
        assert await post.sleep(name, LONG_S) == {WORK}
    assert post.server.ask("EXISTS", post.key) == 0


async def test_a_sleep_ends_by_its_own_clock(post: Post) -> None:
    start = time.monotonic()
    assert await post.sleep(b"one", 0.1) == set()
    assert 0.1 <= time.monotonic() - start < LONG_S / 2


async def test_after_a_lost_connection_everybody_is_woken_once(server: RedisServer, post: Post) -> None:
    """What was told to a server that died may be gone with it."""
    sleeps = [asyncio.create_task(post.sleep(name, LONG_S)) for name in (b"session", b"job")]
    await post.heard()
    server.kill()
    server.start()
    for sleep in sleeps:
        assert wake_of(await sleep).work
    assert await post.sleep(b"session", 0.05) == set(), "once is enough"
    await post.heard()
    post.tell(WORK + b"session")
    assert await post.sleep(b"session", LONG_S) == {WORK}


async def test_a_frozen_server_is_noticed(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    post = Post(server, wait_s=0.2)
    sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
    await post.heard()
    server.freeze()
    await post.until(lambda: "are interrupted" in caplog.text)
    server.thaw()
    assert wake_of(await sleeping).work, "the connection was given up, and made again"
    await post.receivers.close()


async def test_a_quiet_server_is_not_given_up(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wakeup_receiver.GUARD >= 2, "it has as long again for its answer that there is nothing"
    monkeypatch.setattr(wakeup_receiver, "GUARD", 1_000)  # a busy machine may answer late
    post = Post(server, wait_s=0.1)
    sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
    await post.heard()
    await post.asked(3)
    assert not sleeping.done(), "answers that there is nothing, and nobody was woken for them"
    sleeping.cancel()
    await post.receivers.close()


async def test_sleepers_in_other_loops_are_woken_by_the_one_that_listens(post: Post) -> None:
    """A session may claim in one loop and sleep in another."""
    assert await asyncio.to_thread(lambda: asyncio.run(address(post))) != post.receivers.here().address
    heard: list[set[bytes]] = []

    async def elsewhere() -> None:
        heard.append(await post.waiters.sleep(b"two", LONG_S))  # sleeps there; only this test's loop listens

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    here = asyncio.create_task(post.sleep(b"one", LONG_S))
    await post.heard()
    post.waiters.expect(b"two")
    until("it sleeps", lambda: bool(post.waiters._waiters[b"two"].sleepers))
    post.tell(WORK + b"two", WORK + b"one")
    assert await here == {WORK}
    await asyncio.to_thread(thread.join, LONG_S)
    assert heard == [{WORK}]


async def address(post: Post) -> str:
    return post.receivers.here().address


def test_a_loop_that_ends_while_it_listens_leaves_nothing_open(server: RedisServer) -> None:
    post = Post(server)

    async def some() -> None:
        sleeping = asyncio.create_task(post.sleep(b"one", LONG_S))
        await post.heard()
        sleeping.cancel()

    for _ in range(3):
        asyncio.run(some())
        gc.collect()
    until("the connections are closed", lambda: b"cmd=blpop" not in server.ask("CLIENT", "LIST"))


@pytest.mark.parametrize("kind", [FINISHED, WORK, URGENT, CANCEL])
async def test_nothing_is_kept_for_whom_nobody_waits(post: Post, kind: bytes) -> None:
    post.waiters.expect(b"expected")
    post.waiters.deliver(kind, b"gone")
    post.waiters.deliver(kind, b"expected")
    assert await post.waiters.sleep(b"expected", LONG_S) == {kind}
    assert set(post.waiters._waiters) == {b"expected"}
    post.waiters.forget(b"expected")
    assert post.waiters._waiters == {}


async def test_a_session_that_leaves_while_it_sleeps_is_forgotten_when_it_wakes(post: Post) -> None:
    sleeping = asyncio.create_task(post.waiters.sleep(b"one", LONG_S))
    await asyncio.sleep(0)
    post.waiters.forget(b"one")
    post.waiters.deliver(WORK, b"one")
    assert await sleeping == {WORK}
    assert post.waiters._waiters == {}


async def test_sessions_that_died_are_forgotten_in_time(post: Post) -> None:
    """They do not leave; whoever still beats or sleeps stays."""
    for number in range(MANY - 1):
        post.waiters.expect(b"dead %d" % number)
        post.waiters._waiters[b"dead %d" % number].at_s -= GONE_S
    sleeping = asyncio.create_task(post.waiters.sleep(b"asleep", LONG_S))
    await asyncio.sleep(0)
    post.waiters._waiters[b"asleep"].at_s -= GONE_S
    post.waiters.expect(b"new")
    assert set(post.waiters._waiters) == {b"asleep", b"new"}
    post.waiters.deliver(WORK, b"asleep")
    assert await sleeping == {WORK}


async def test_a_message_is_delivered_to_a_sleeper_of_this_loop_without_a_detour(post: Post) -> None:
    sleeping = asyncio.create_task(post.waiters.sleep(b"one", LONG_S))
    await asyncio.sleep(0)
    post.waiters.deliver(WORK, b"one")
    await asyncio.sleep(0)
    assert sleeping.done(), "by a callback of the loop it would be one turn later"
