"""The durability that the server has is said at start, and with strict=1 it must be good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from limpet.core.errors import StoreError
from limpet.core.jobs.view import Finding
from limpet.stores.redis.check import findings, startup
from limpet.stores.redis.client import Client
from limpet.stores.redis.url import parse_redis
from tests.servers.flavours import REDIS
from tests.servers.fleet import replica
from tests.servers.redis import RedisServer, running


async def found(server: RedisServer, login: str = "") -> dict[str, Finding]:
    client = Client(parse_redis(f"redis://{login}127.0.0.1:{server.port}"), "limpet:x")
    try:
        answer = await findings(client)
    finally:
        client.drop()
    assert len({finding.code for finding in answer}) == len(answer)
    assert all(finding.fix for finding in answer if finding.level != "ok")
    return {finding.code: finding for finding in answer}


def levels(answer: dict[str, Finding]) -> dict[str, str]:
    return {code: finding.level for code, finding in answer.items()}


async def test_a_server_as_it_should_be_is_all_good(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path, aof="everysec")) as server:
        answer = await found(server)
        assert levels(answer) == {"version": "ok", "log": "ok", "sync": "ok", "eviction": "ok"}
        assert "two seconds at most" in answer["sync"].text
        assert answer["version"].text.split(" ")[0] == ("Valkey" if REDIS == "valkey" else "Redis")
        server.ask("CONFIG", "SET", "appendfsync", "always")
        assert "before it is acknowledged" in (await found(server))["sync"].text
        startup(list((await found(server)).values()), strict=True)


async def test_what_may_lose_jobs_is_said_with_its_fix(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        answer = await found(server)
        assert answer["log"].level == "error"
        assert "no AOF: a crash loses acknowledged jobs" in answer["log"].text
        assert "CONFIG SET appendonly yes" in answer["log"].fix
        assert "from then on start it with --appendonly yes" in answer["log"].fix, "it has no configuration file"
        server.ask("CONFIG", "SET", "save", "3600 1")
        assert (await found(server))["log"].level == "warning"
        server.ask("CONFIG", "SET", "appendonly", "yes")
        server.ask("CONFIG", "SET", "appendfsync", "no")
        assert (await found(server))["sync"].level == "warning"

        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert (await found(server))["eviction"].level == "warning", "without a maxmemory nothing is dropped yet"
        server.ask("CONFIG", "SET", "maxmemory", "100mb")
        answer = await found(server)
        assert answer["eviction"].level == "error"
        assert "may drop jobs" in answer["eviction"].text
        server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert "memory" not in await found(server)
        used = int(server.ask("INFO", "memory").split(b"used_memory:")[1].split(b"\r")[0])
        server.ask("CONFIG", "SET", "maxmemory", used)
        answer = await found(server)
        assert (answer["eviction"].level, answer["memory"].level) == ("ok", "warning")


async def test_replicas_and_their_masters(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path / "a", aof="everysec")) as master:
        copy = replica(master, tmp_path / "b")
        try:
            assert (await found(copy))["role"].level == "error"
            assert (await found(master))["replicas"].level == "warning"
            master.ask("CONFIG", "SET", "min-replicas-to-write", 1)
            assert "replicas" not in await found(master)
        finally:
            copy.kill()


async def test_a_server_that_hides_its_settings_is_not_called_good(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path, aof="always")) as server:
        server.ask("ACL", "SETUSER", "ada", "on", ">pw", "~*", "+@all", "-config")
        answer = await found(server, "ada:pw@")
        assert answer["sync"].level == "warning"
        assert "cannot be seen" in answer["sync"].text


def test_at_start_what_is_bad_is_logged_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    good, bad, worse = (
        Finding("ok", "version", "Redis 7"),
        Finding("warning", "sync", "half a minute", "flush it"),
        Finding("error", "log", "no AOF", "log it"),
    )
    everything: Sequence[Finding] = (good, bad, worse)
    startup(everything, strict=False)
    logged = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert logged == [(logging.ERROR, "no AOF (log it)"), (logging.WARNING, "half a minute (flush it)")]
    with pytest.raises(StoreError, match="no AOF") as caught:
        startup(everything, strict=True)
    assert caught.value.fix == "log it"
    with pytest.raises(StoreError, match="half a minute"):
        startup([good, bad], strict=True)
    startup([good], strict=True)
