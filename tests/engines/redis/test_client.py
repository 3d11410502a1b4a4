"""The way to the server: found again after every kind of loss, and no verb done twice that must not be."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from limpet.core.errors import InvalidOption, StoreError, StoreTimeout, StoreUnreachable
from limpet.stores.redis.client import Client
from limpet.stores.redis.scripts import Script
from limpet.stores.redis.server import slot_of
from limpet.stores.redis.url import parse_redis
from limpet.stores.server.client import FIRST_PAUSE_S, LONGEST_PAUSE_S, pause
from limpet.stores.server.url import TIMEOUT_S
from tests.servers.door import door
from tests.servers.flavours import REDIS
from tests.servers.fleet import Sentinel, cluster, replica, sentinel, until
from tests.servers.process import free_port
from tests.servers.redis import RedisServer, exchange, running

TAG = "limpet:x"
KEY = b"{limpet:x}:m"
PATIENCE_S = 60  # more than anything takes on a busy machine, the start of a server included


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(RedisServer(REDIS, tmp_path, aof="always")) as server:
        yield server


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Client]:
    client = Client(parse_redis(f"{server.url}?timeout={PATIENCE_S}"), TAG)
    yield client
    client.drop()
    await asyncio.sleep(0)


async def test_a_killed_server_is_found_again_when_it_is_back(
    server: RedisServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="limpet.stores.redis")
    await client.call("set", "SET", KEY, "kept")
    server.kill()
    waiting = [asyncio.create_task(client.call("get", "GET", KEY)) for _ in range(20)]
    async with asyncio.timeout(PATIENCE_S):
        while not caplog.records:  # noqa: ASYNC110  # that it cannot be reached
            await asyncio.sleep(0.01)
    server.start()
    assert await asyncio.gather(*waiting) == [b"kept"] * 20
    assert client.reach.reconnects == 1
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in messages] == ["cannot reach redis", "connected to redis"]
    assert "again" in messages[1]


async def test_a_server_that_is_not_there_is_named_with_the_reason_by_the_deadline(server: RedisServer) -> None:
    server.kill()
    client = Client(parse_redis(f"redis://ada:hunter2@127.0.0.1:{server.port}?timeout=0.4"), TAG)
    start = time.monotonic()
    with pytest.raises(StoreUnreachable) as caught:
        await client.call("enqueue", "SET", KEY, 1)
    assert 0.35 < time.monotonic() - start < TIMEOUT_S
    text = str(caught.value)
    assert f"127.0.0.1:{server.port}" in text
    assert "Connect call failed" in text
    assert "nothing was sent" in text
    assert "hunter2" not in text
    assert caught.value.verb == "enqueue"
    client.drop()


async def test_while_the_server_is_away_nobody_hammers_it(server: RedisServer) -> None:
    """Many callers share one attempt at a time, with pauses that grow."""
    server.kill()
    knocks = 0

    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1

    async with door(slam, server.port) as port:
        client = Client(parse_redis(f"redis://127.0.0.1:{port}"), TAG)
        calls = [client.call("get", "GET", KEY, deadline_s=3.0) for _ in range(100)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        client.drop()
    assert all(isinstance(answer, StoreUnreachable) for answer in answers)
    assert 2 <= knocks <= 16


async def test_a_server_that_hangs_up_after_the_greeting_is_not_hammered() -> None:
    greeted = 0

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        await reader.read(65536)
        writer.write(b"+OK\r\n")
        await reader.read(65536)

    async with door(greet) as port:
        client = Client(parse_redis(f"redis://127.0.0.1:{port}"), TAG)
        calls = [client.call("get", "GET", KEY, deadline_s=3.0) for _ in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(answer, StoreTimeout) for answer in answers), "it was sent, and nobody can know more"
        assert 2 <= greeted <= 16
        assert client.reach.reconnects == 0, "none of them was a connection"
        client.drop()


@pytest.mark.parametrize("password", ["", "s3cret"])
async def test_a_server_without_a_connection_to_spare_is_waited_for_and_not_hammered(
    server: RedisServer, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as last:
        if password:
            exchange(last, ["CONFIG", "SET", "requirepass", password])
            exchange(last, ["AUTH", password])
        exchange(last, ["CONFIG", "SET", "maxclients", 1])
        login = f":{password}@" if password else ""
        client = Client(parse_redis(f"redis://{login}127.0.0.1:{server.port}?timeout={PATIENCE_S}"), TAG)
        with pytest.raises(StoreUnreachable, match="has no connection left for us") as caught:
            await client.call("enqueue", "SET", KEY, 1, deadline_s=3.0)
        assert "may have happened" not in str(caught.value)
        assert "maxclients" in caught.value.fix
        found = re.search(rb"rejected_connections:(\d+)", exchange(last, ["INFO", "stats"]))
        assert found is not None
        assert 2 <= int(found.group(1)) <= 16
        waiting = asyncio.create_task(client.call("enqueue", "SET", KEY, 1))
        await asyncio.sleep(0.2)
        exchange(last, ["CONFIG", "SET", "maxclients", 100])
        assert await waiting == b"OK", "it is there as soon as there is room"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "cannot reach redis",
        "connected to redis",
    ]
    client.drop()


def test_pauses_grow_and_are_never_all_alike() -> None:
    first = [pause(0) for _ in range(100)]
    later = [pause(20) for _ in range(100)]
    assert all(FIRST_PAUSE_S / 2 <= each <= FIRST_PAUSE_S for each in first)
    assert all(LONGEST_PAUSE_S / 2 <= each <= LONGEST_PAUSE_S for each in later)
    assert len(set(first)) > 50


async def test_what_must_not_be_done_twice_is_not_repeated_once_it_was_sent(
    server: RedisServer, client: Client
) -> None:
    await client.call("incr", "INCR", KEY)
    for again, deadline_s, expected in ((False, PATIENCE_S, StoreUnreachable), (True, 0.6, StoreTimeout)):
        server.freeze()
        unsure = asyncio.create_task(client.call("incr", "INCR", KEY, again=again, deadline_s=deadline_s))
        await asyncio.sleep(0)
        with pytest.raises(StoreTimeout):
            await client.call("get", "GET", KEY, deadline_s=0.1)  # gives up the connection that both share
        with pytest.raises(expected, match="may have happened") as caught:
            await unsure
        assert type(caught.value) is expected
        server.thaw()
        await client.call("get", "GET", KEY)
    server.kill()
    with pytest.raises(StoreError):
        await client.call("get", "GET", KEY, deadline_s=0.1)  # notices that the connection is gone
    unsent = asyncio.create_task(client.call("incr", "INCR", KEY, again=False))
    await asyncio.sleep(0.1)
    server.start()
    assert await unsent > 1, "what never left this process may be sent later"


async def test_a_stranger_who_talks_no_redis_is_no_reason_to_wait_for_ever() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"SSH-2.0-hello\r\n")
        await writer.drain()

    async with door(talk) as port:
        client = Client(parse_redis(f"redis://127.0.0.1:{port}"), TAG)
        with pytest.raises(StoreUnreachable, match="does not speak Redis's protocol"):
            await client.call("get", "GET", KEY, deadline_s=2)
        client.drop()


async def test_crash_points_may_stop_a_verb_before_and_after(client: Client) -> None:
    seen = []

    def note(verb: str, moment: str) -> None:
        seen.append((verb, moment))
        if moment == "after":
            raise StoreTimeout("unheard", verb=verb)

    client.intercept = note
    with pytest.raises(StoreTimeout, match="unheard"):
        await client.call("incr", "INCR", KEY)
    client.intercept = None
    assert await client.call("get", "GET", KEY) == b"1"
    assert seen == [("incr", "before"), ("incr", "after")]


async def test_closing_tells_those_who_wait_and_leaves_no_connection(server: RedisServer) -> None:
    client = Client(parse_redis(server.url), TAG)
    server.freeze()
    waiting = asyncio.create_task(client.call("get", "GET", KEY))
    await asyncio.sleep(0.05)
    client.drop()
    with pytest.raises(StoreUnreachable, match="closed before the call was sent"):
        await waiting
    server.thaw()
    client = Client(parse_redis(server.url), TAG)
    await client.call("get", "GET", KEY)
    server.freeze()
    waiting = asyncio.create_task(client.call("get", "GET", KEY))
    await asyncio.sleep(0)
    client.drop()
    with pytest.raises(StoreUnreachable, match="may have happened"):
        await waiting
    server.thaw()


# -- TLS


def certificate(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    folder.mkdir(exist_ok=True)
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    words += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    return cert, key


@pytest.fixture
async def tls_port(server: RedisServer, tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """A TLS door in front of the server: none of the test servers was built with TLS."""
    cert, key = certificate(tmp_path / "tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    tasks = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        for task in (asyncio.create_task(carry(reader, back)), asyncio.create_task(carry(there, writer))):
            tasks.add(task)

    door = await asyncio.start_server(join, "127.0.0.1", 0, ssl=context)
    yield door.sockets[0].getsockname()[1], cert
    door.close()
    await door.wait_closed()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_tls_with_a_certificate_that_is_trusted_or_not(tls_port: tuple[int, Path]) -> None:
    port, cert = tls_port
    for options in (f"?ca={cert}", "?insecure=1"):
        client = Client(parse_redis(f"rediss://localhost:{port}{options}"), TAG)
        assert await client.call("ping", "PING") == b"PONG"
        large = b"x" * 1_000_000
        assert await client.call("echo", "ECHO", large) == large
        client.drop()
        await asyncio.sleep(0.05)
    for url, words in [
        (f"rediss://localhost:{port}?timeout={PATIENCE_S}", "cannot be trusted"),
        (f"rediss://127.0.0.1:{port}?ca={cert}&timeout={PATIENCE_S}", "cannot be trusted"),
    ]:
        client = Client(parse_redis(url), TAG)
        start = time.monotonic()
        with pytest.raises(StoreError, match=words) as caught:
            await client.call("ping", "PING")
        assert "ca=FILE" in caught.value.fix
        assert not caught.value.retryable
        assert time.monotonic() - start < PATIENCE_S / 2, "no waiting makes a certificate trusted"
        client.drop()
        await asyncio.sleep(0.05)


async def test_tls_to_a_server_without_it_is_named(server: RedisServer) -> None:
    client = Client(parse_redis(f"rediss://127.0.0.1:{server.port}?timeout=1"), TAG)
    with pytest.raises(StoreError):
        await client.call("ping", "PING")
    client.drop()


async def test_certificates_that_cannot_be_read_are_named() -> None:
    with pytest.raises(InvalidOption, match="cannot be read"):
        Client(parse_redis("rediss://h?ca=/nowhere/ca.pem"), TAG)


# -- Sentinel


async def test_sentinels_name_the_master_and_after_a_failover_the_new_one(tmp_path: Path) -> None:
    master = RedisServer(REDIS, tmp_path / "a").start()
    copy = replica(master, tmp_path / "b")
    watch: Sentinel = sentinel(master, tmp_path / "s")
    client = Client(parse_redis(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{watch.port}/{watch.name}"), TAG)
    try:
        await client.call("set", "SET", KEY, "one")
        assert client.server.home is not None
        assert client.server.home.port == master.port
        until("the copy is complete", lambda: copy.ask("GET", KEY) == b"one")
        until(
            "the sentinel knows the replica",
            lambda: b"slave" in str(watch.ask("SENTINEL", "REPLICAS", watch.name)).encode(),
        )
        watch.expect_a_kill()
        master.kill()
        assert await client.call("set", "SET", KEY, "two", deadline_s=PATIENCE_S) == b"OK"
        assert client.server.home.port == copy.port == watch.master_port()
        assert copy.ask("GET", KEY) == b"two"
        # A Sentinel may still name a server that has become a replica: then it is asked again.
        copy.ask("REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(StoreUnreachable):
            await client.call("set", "SET", KEY, "three", deadline_s=2)
        with pytest.raises(StoreUnreachable, match="is not the master any more"):
            await client.call("get", "GET", KEY, deadline_s=2)  # a replica would answer, with what was true once
        copy.ask("REPLICAOF", "NO", "ONE")
        assert await client.call("set", "SET", KEY, "three", deadline_s=PATIENCE_S) == b"OK"
    finally:
        client.drop()
        for each in (watch, copy, master):
            each.kill()


async def test_a_name_that_no_sentinel_knows_is_named(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path / "a")) as master:
        watch = sentinel(master, tmp_path / "s")
        try:
            client = Client(parse_redis(f"redis+sentinel://127.0.0.1:{watch.port}/other"), TAG)
            with pytest.raises(StoreUnreachable, match="knows no master named 'other'"):
                await client.call("ping", "PING", deadline_s=2)
            client.drop()
        finally:
            watch.kill()


# -- Cluster


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisServer]]:
    nodes = cluster(REDIS, tmp_path, masters=2)
    yield nodes
    for node in nodes:
        node.kill()


def owner_and_other(nodes: list[RedisServer]) -> tuple[RedisServer, RedisServer]:
    return (nodes[0], nodes[1]) if slot_of(TAG) < 8192 else (nodes[1], nodes[0])


async def test_a_cluster_is_asked_once_and_followed_when_slots_move(nodes: list[RedisServer]) -> None:
    owner, other = owner_and_other(nodes)
    slot = slot_of(TAG)
    assert owner.ask("CLUSTER", "KEYSLOT", KEY) == slot
    urls = [f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{other.port}", f"redis://127.0.0.1:{other.port}"]
    clients = [Client(parse_redis(f"{url}?timeout={PATIENCE_S}"), TAG) for url in urls]
    for number, client in enumerate(clients):
        assert await client.call("incr", "INCR", KEY) == number + 1, "a plain URL is sent on by MOVED"
    ids = {node.port: node.ask("CLUSTER", "MYID") for node in nodes}

    # The slot moves: what is gone is asked for there (ASK), what is not there yet is asked for here.
    other.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner.port])
    owner.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[other.port])
    assert await clients[0].call("incr", "INCR", KEY) == 3
    owner.ask("MIGRATE", "127.0.0.1", other.port, KEY, 0, 30_000)
    for number, client in enumerate(clients):
        assert await client.call("incr", "INCR", KEY) == 4 + number
        assert await asyncio.gather(*(client.call("get", "GET", KEY) for _ in range(10))) == [b"%d" % (4 + number)] * 10

    # Keys on both sides: TRYAGAIN until the move is over.
    waiting = asyncio.create_task(clients[0].call("mget", "MGET", KEY, b"{limpet:x}:none"))
    await asyncio.sleep(0.1)
    for node in (other, owner):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[other.port])
    assert await waiting == [b"5", None]
    for client in clients:
        assert (await client.call("incr", "INCR", KEY)) > 5
        assert client.server.home is not None
        assert client.server.home.port == other.port
        client.drop()


async def test_a_script_follows_its_slot_to_a_node_that_does_not_know_it(nodes: list[RedisServer]) -> None:
    owner, other = owner_and_other(nodes)
    text = "return redis.call('INCR', KEYS[1])"
    count = Script("count", text, other.ask("SCRIPT", "LOAD", text).decode())
    other.ask("SCRIPT", "FLUSH")
    slot = slot_of(TAG)
    ids = {node.port: node.ask("CLUSTER", "MYID") for node in nodes}
    client = Client(parse_redis(f"redis+cluster://127.0.0.1:{owner.port}?timeout={PATIENCE_S}"), TAG)
    assert await client.script("count", count, KEY, []) == 1
    other.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[owner.port])
    owner.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[other.port])
    owner.ask("MIGRATE", "127.0.0.1", other.port, KEY, 0, 30_000)
    assert await client.script("count", count, KEY, []) == 2
    for node in (other, owner):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[other.port])
    other.ask("SCRIPT", "FLUSH")
    assert await client.script("count", count, KEY, []) == 3
    client.drop()


async def test_a_cluster_that_is_down_is_waited_for_and_then_named(nodes: list[RedisServer]) -> None:
    owner, _ = owner_and_other(nodes)
    client = Client(parse_redis(f"redis+cluster://127.0.0.1:{owner.port}?timeout={PATIENCE_S}"), TAG)
    await client.call("set", "SET", KEY, 1)
    gone = 8191 if owner is nodes[0] else 8192  # another slot of the same node: a Cluster with a hole takes nothing
    owner.ask("CLUSTER", "DELSLOTS", gone)
    until("it notices", lambda: b"cluster_state:fail" in owner.ask("CLUSTER", "INFO"))
    with pytest.raises(StoreUnreachable, match="Cluster is down"):
        await client.call("set", "SET", KEY, 2, deadline_s=2)
    waiting = asyncio.create_task(client.call("set", "SET", KEY, 3))
    await asyncio.sleep(0.05)
    owner.ask("CLUSTER", "ADDSLOTS", gone)
    assert await waiting == b"OK"
    client.drop()


async def test_a_server_without_cluster_is_named_at_once(server: RedisServer) -> None:
    server.ask("CONFIG", "SET", "requirepass", "hunter2")
    for login, words in ((":hunter2@", "cluster support disabled"), (":hunter3@", "does not accept")):
        client = Client(parse_redis(f"redis+cluster://{login}127.0.0.1:{server.port}?timeout={PATIENCE_S}"), TAG)
        start = time.monotonic()
        with pytest.raises(StoreError, match=words) as caught:
            await client.call("set", "SET", KEY, 1)
        assert time.monotonic() - start < PATIENCE_S / 2
        assert not caught.value.retryable
        assert "hunter" not in str(caught.value)
        client.drop()


def test_the_slot_of_a_tag_is_the_servers() -> None:
    assert slot_of("123456789") == 0x31C3
    assert slot_of("foo") == 12182
