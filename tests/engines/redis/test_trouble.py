"""What callers hear when the server refuses, and what they never hear because it passes."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

from limpet.core.errors import SchemaOutdated, StoreError, StoreFull, StoreTimeout, StoreUnreachable
from limpet.stores.redis.client import Client
from limpet.stores.redis.connection import Refusal
from limpet.stores.redis.scripts import Script
from limpet.stores.redis.trouble import PERMISSIONS, REMEDIES, code_of, refused
from limpet.stores.redis.url import parse_redis
from tests.servers.flavours import REDIS
from tests.servers.process import Unreachable
from tests.servers.redis import RedisServer, running

KEY = b"{limpet:x}:m"
TIMEOUT_S = 60
PATIENCE_S = TIMEOUT_S / 2  # less than a timeout that a deadline could have been mistaken for


def script_of(text: str) -> Script:
    return Script("test", text, hashlib.sha1(text.encode()).hexdigest())


WRITE = script_of("return redis.call('SET', KEYS[1], ARGV[1])")
READ = script_of("return redis.call('GET', KEYS[1])")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with running(RedisServer(REDIS, tmp_path)) as server:
        yield server


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Client]:
    client = Client(parse_redis(f"{server.url}?timeout={TIMEOUT_S}"), "limpet:x")
    yield client
    client.drop()
    await asyncio.sleep(0)


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that happens within a minute, while the loop goes on."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not true():
        assert time.monotonic() < deadline_s, "it never happened"
        await asyncio.sleep(0.01)


async def write(client: Client, value: str = "1", **more: Any) -> Any:
    return await client.script("enqueue", WRITE, KEY, [value], **more)


async def refusal(client: Client, error: type[StoreError], deadline_s: float = 2) -> StoreError:
    """The error that a script and a plain command both end in, by their deadline."""
    start = time.monotonic()
    with pytest.raises(error) as by_script:
        await write(client, "refused", deadline_s=deadline_s)
    with pytest.raises(error) as by_command:
        await client.call("enqueue", "SET", KEY, "refused", deadline_s=deadline_s)
    assert time.monotonic() - start < PATIENCE_S
    assert type(by_script.value) is type(by_command.value) is error
    assert by_script.value.verb == "enqueue"
    assert by_script.value.message.startswith("redis://")
    assert "127.0.0.1" in by_script.value.message
    assert by_script.value.fix
    return by_script.value


async def test_a_full_memory_is_a_full_store_and_nothing_else_is_needed_than_space(
    server: RedisServer, client: Client
) -> None:
    await write(client, "before")
    server.ask("CONFIG", "SET", "maxmemory", 1)
    error = await refusal(client, StoreFull)
    assert "maxmemory" in str(error)
    assert error.retryable
    assert await client.script("get", READ, KEY, []) == b"before", "reading goes on"
    server.ask("CONFIG", "SET", "maxmemory", 0)
    await write(client, "after")


async def test_a_disk_that_takes_no_snapshot_is_a_full_store(server: RedisServer, client: Client) -> None:
    await write(client, "before")
    server.ask("CONFIG", "SET", "save", "3600 1")
    blocked = server.folder / "dump.rdb"
    blocked.mkdir()  # a snapshot cannot be renamed over a folder with something in it
    (blocked / "x").touch()
    server.ask("BGSAVE")
    await until(lambda: b"rdb_last_bgsave_status:err" in server.ask("INFO", "persistence"))
    error = await refusal(client, StoreFull)
    assert "MISCONF" in str(error)
    server.ask("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    await write(client, "after")


async def test_too_few_replicas_are_an_outage(server: RedisServer, client: Client) -> None:
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    await refusal(client, StoreUnreachable)
    server.ask("CONFIG", "SET", "min-replicas-to-write", 0)
    await write(client)


async def test_a_replica_is_waited_for_until_it_is_a_master(server: RedisServer, client: Client) -> None:
    await write(client, "before")
    server.ask("REPLICAOF", "127.0.0.1", 1)
    error = await refusal(client, StoreUnreachable)
    assert "is a replica" in str(error)
    server.ask("CONFIG", "RESETSTAT")
    waiting = asyncio.create_task(write(client, "after"))
    await until(lambda: b"errorstat_" in server.ask("INFO", "errorstats"))
    server.ask("REPLICAOF", "NO", "ONE")
    assert await waiting == b"OK"
    assert server.ask("GET", KEY) == b"after"


async def test_a_replica_without_its_master_is_waited_for(server: RedisServer, client: Client) -> None:
    server.ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnreachable, match="has lost its master"):
        await write(client, deadline_s=2)
    server.ask("CONFIG", "RESETSTAT")
    waiting = asyncio.create_task(write(client, "after"))
    await until(lambda: b"errorstat_" in server.ask("INFO", "errorstats"))
    server.ask("REPLICAOF", "NO", "ONE")
    assert await waiting == b"OK"


async def test_a_script_that_holds_up_the_server_is_waited_for_and_never_killed(
    server: RedisServer, client: Client
) -> None:
    await write(client)
    server.ask("CONFIG", "SET", "lua-time-limit", 1)
    stranger = Client(parse_redis(server.url), "limpet:y")
    # It writes nothing, so that SCRIPT KILL ends it: ours, when we have seen that nobody else's did.
    long = asyncio.create_task(stranger.call("long", "EVAL", "while true do end", 0, deadline_s=60))
    await until(lambda: isinstance(peek(server), hiredis.ReplyError))
    with pytest.raises(StoreUnreachable, match="held up by a script") as caught:
        await write(client, deadline_s=2)
    assert "SLOWLOG" in caught.value.fix
    waiting = asyncio.create_task(write(client, "after"))
    await asyncio.sleep(0)
    assert isinstance(peek(server), hiredis.ReplyError), "it still runs"
    server.ask("SCRIPT", "KILL")
    assert await waiting == b"OK"
    with pytest.raises(StoreError, match="killed"):
        await long
    stranger.drop()


def peek(server: RedisServer) -> object:
    """What a newcomer is told."""
    try:
        return server.ask("PING")
    except (hiredis.ReplyError, Unreachable) as error:
        return error


async def test_loading_is_waited_for(tmp_path: Path) -> None:
    flavour = "valkey" if REDIS == "redis-6.2" else REDIS  # Redis 6.2 takes no setting while it loads
    server = RedisServer(flavour, tmp_path, aof="always")
    with running(server):
        # Each command takes a moment to load (key-load-delay, in µs); every thousand it answers who has asked. It takes
        # half a minute, or as long as we like.
        server.ask("EVAL", "for i = 1, 80000 do redis.call('SET', 'k' .. i, i) end", 0)
        server.kill()
        slow = RedisServer(flavour, tmp_path, aof="everysec", args=["--key-load-delay", "300"], port=server.port)
        slow.launch()
        try:
            await until(lambda: "LOADING" in str(peek(slow)))
            client = Client(parse_redis(slow.url), "limpet:x")
            seen = ""
            while "still loading" not in seen:  # a busy machine may take long for the first handshake
                with pytest.raises(StoreError) as caught:
                    await write(client, deadline_s=2)
                assert caught.value.retryable
                seen = str(caught.value)
            slow.ask("CONFIG", "SET", "key-load-delay", 0)
            assert await write(client, deadline_s=TIMEOUT_S) == b"OK"
            assert slow.ask("GET", "k80000") == b"80000"
            client.drop()
        finally:
            slow.kill()


async def test_a_forgotten_script_is_given_to_the_server_again_unseen(server: RedisServer, client: Client) -> None:
    assert await write(client, "0") == b"OK"
    for number in range(1, 50):
        if number % 7 == 0:
            server.ask("SCRIPT", "FLUSH")
        answers = await asyncio.gather(*(write(client, str(number)) for _ in range(20)))
        assert answers == [b"OK"] * 20


async def test_a_script_that_does_not_compile_is_named_at_once(client: Client) -> None:
    start = time.monotonic()
    with pytest.raises(StoreError, match="Error compiling script") as caught:
        await client.script("claim", script_of("nonsense("), KEY, [])
    assert not caught.value.retryable
    assert time.monotonic() - start < PATIENCE_S


async def test_a_layout_of_a_later_release_is_named(client: Client) -> None:
    with pytest.raises(SchemaOutdated, match="layout 9"):
        await client.script("claim", script_of("return redis.error_reply('LPLAYOUT layout 9')"), KEY, [])


async def test_any_other_refusal_has_verb_and_text(client: Client) -> None:
    await write(client)
    with pytest.raises(StoreError, match=r"refused claim.*WRONGTYPE") as caught:
        await client.call("claim", "LPUSH", KEY, 1)
    assert type(caught.value) is StoreError
    assert not caught.value.retryable


async def test_logins_that_cannot_work_are_named_at_once_with_a_fix_and_without_the_password(
    server: RedisServer,
) -> None:
    port = server.port
    server.ask("ACL", "SETUSER", "ada", "on", ">hunter2", *PERMISSIONS.split())
    server.ask("ACL", "SETUSER", "bob", "on", ">hunter2", "~other:*", "+@all")
    server.ask("CONFIG", "SET", "requirepass", "hunter2")
    for login, words in [
        ("", "asks for a password"),
        ("ada:hunter3@", "does not accept"),
        ("bob:hunter2@", "does not permit"),
    ]:
        client = Client(parse_redis(f"redis://{login}127.0.0.1:{port}?timeout={TIMEOUT_S}"), "limpet:x")
        start = time.monotonic()
        with pytest.raises(StoreError, match=words) as caught:
            await write(client)
        assert time.monotonic() - start < PATIENCE_S
        assert not caught.value.retryable
        assert caught.value.fix
        assert "hunter" not in str(caught.value)
        client.drop()
    for login in ("ada:hunter2@", ":hunter2@"):
        client = Client(parse_redis(f"redis://{login}127.0.0.1:{port}"), "limpet:x")
        assert await write(client) == b"OK"
        client.drop()


async def test_a_password_for_a_server_without_one_is_named(server: RedisServer) -> None:
    client = Client(parse_redis(f"redis://ada:hunter2@127.0.0.1:{server.port}"), "limpet:x")
    with pytest.raises(StoreError, match="does not accept this user and password") as caught:
        await write(client)
    assert "hunter2" not in str(caught.value)
    client.drop()


async def test_a_frozen_server_is_a_timeout_by_the_deadline_and_forgotten_when_it_thaws(
    server: RedisServer, client: Client
) -> None:
    await write(client)
    server.freeze()
    start = time.monotonic()
    with pytest.raises(StoreTimeout, match="may have happened all the same"):
        await write(client, "asked", deadline_s=0.3)
    with pytest.raises(StoreUnreachable, match="nothing was sent"):
        await write(client, "never sent", deadline_s=0.3)
    assert 0.6 <= time.monotonic() - start < PATIENCE_S
    server.thaw()
    assert await write(client, "after") == b"OK"


def test_every_code_has_a_reason_and_errors_inside_scripts_are_recognised() -> None:
    inner = "ERR Error running script (call to f_0): @user_script:9: @user_script: 9: -OOM command not allowed"
    assert code_of(Refusal(inner)) == "OOM"
    assert (
        code_of(Refusal("ERR Error running script (call to f_0): @user_script:9: WRONGTYPE Operation")) == "WRONGTYPE"
    )
    assert code_of(Refusal("ERR no such thing")) == "ERR"
    for code in REMEDIES.keys() - {"NOSCRIPT"}:
        error = refused(Refusal(f"{code} 1 a:1"), "claim", "h:1")
        assert isinstance(error, StoreUnreachable), code
        assert error.fix
