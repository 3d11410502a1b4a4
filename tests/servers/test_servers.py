"""The test servers do what tests rely on: they keep what they should, and end with whoever started them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.flavours import FLAVOURS, ROOT, Flavour, MissingServer, program
from tests.servers.fleet import cluster, sentinel, until
from tests.servers.process import Unreachable
from tests.servers.redis import RedisServer, running


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_killed_server_comes_back_on_its_port_with_what_was_acknowledged(flavour: Flavour, tmp_path: Path) -> None:
    with running(RedisServer(flavour, tmp_path, aof="everysec")) as server:
        port, pid = server.port, server.pid
        server.ask("SET", "kept", "yes")
        server.kill()
        with pytest.raises(Unreachable):
            server.ask("PING")
        server.start()
        assert (server.port, server.ask("GET", "kept")) == (port, b"yes")
        assert server.pid != pid


def test_a_frozen_server_is_silent_until_it_is_thawed(tmp_path: Path) -> None:
    with running(RedisServer("redis-6.2", tmp_path)) as server:
        server.freeze()
        with pytest.raises(Unreachable, match="timed out"):
            server.ask("PING", timeout_s=0.2)
        server.thaw()
        assert server.ask("PING") == b"PONG"


def test_a_server_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from tests.servers.redis import RedisServer
print(RedisServer("redis-6.2", Path(sys.argv[1])).start().port, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    orphan = RedisServer("redis-6.2", tmp_path, port=int(answer.stdout))
    until("nobody listens there any more", lambda: not listens(orphan), within_s=5)


def listens(server: RedisServer) -> bool:
    try:
        return bool(server.ask("PING"))
    except Unreachable:
        return False


def test_a_missing_server_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.flavours._candidates", lambda flavour: iter(()))
    with pytest.raises(MissingServer, match="make"):
        program.__wrapped__("redis-7")


def test_a_sentinel_finds_its_master_and_a_cluster_agrees(tmp_path: Path) -> None:
    with running(RedisServer("redis-6.2", tmp_path / "master")) as master:
        watcher = sentinel(master, tmp_path / "sentinel")
        try:
            until("the sentinel knows the master", lambda: watcher.master_port() == master.port)
        finally:
            watcher.kill()
    nodes = cluster("redis-7", tmp_path / "cluster", masters=2)
    try:
        assert all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes)
    finally:
        for node in nodes:
            node.kill()
