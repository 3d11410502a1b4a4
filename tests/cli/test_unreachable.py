"""Commands on a server that is not there: told at once, once, and in JSON where that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.servers import redis
from tests.servers.flavours import REDIS
from tests.servers.process import free_port, fresh_folder

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

# A command that tried on would take longer than any test may.
SCHEMES = ["redis://127.0.0.1:{port}?timeout=600", "postgresql://me@127.0.0.1:{port}/app?timeout=600"]
WITHIN_S = 60
STARTED_S = 3  # a command that gives up at once has ended by then, also on a busy machine


def words(url: str, *args: str) -> tuple[list[str], dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    return [sys.executable, "-m", "limpet.cli", *args], {**kept, "LIMPET_URL": url}


def run(url: str, *args: str) -> subprocess.CompletedProcess[str]:
    command, env = words(url, *args)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("args", [["stats"], ["enqueue", "greet"]], ids=" ".join)
def test_a_refused_connection_is_told_at_once_and_once(scheme: str, args: list[str]) -> None:
    url = scheme.format(port=free_port())
    ran = run(url, *args)
    assert (ran.returncode, ran.stdout) == (5, "")
    first, *fix = ran.stderr.splitlines()
    assert first.startswith(f"limpet: {url.partition(':')[0]}://"), "it names the store first"
    assert "could not be reached (" in first
    assert fix == ["  see whether the server runs and the URL is right"]
    assert ("not stored" in first) is (args[0] == "enqueue")
    ran = run(url, *args, "--json")
    assert (ran.returncode, ran.stdout) == (5, "")
    assert msgspec.json.decode(ran.stderr)["error"]["code"] == "store_unreachable"


def test_an_app_that_sets_up_logging_adds_nothing_to_the_error(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging\nlogging.basicConfig()\nfrom limpet import Limpet\napp = Limpet()\n"
        "@app.task(name='greet')\ndef greet(): ...\n"
    )
    url = SCHEMES[0].format(port=free_port())
    ran = run(url, "enqueue", "greet", "--app", f"{tmp_path / 'shop.py'}:app", "--json")
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "not stored" in msgspec.json.decode(ran.stderr)["error"]["message"]


@pytest.fixture
def down() -> Iterator[redis.RedisServer]:
    """A server that is not up, and nobody else on its port."""
    server = redis.RedisServer(REDIS, fresh_folder("limpet-redis-"))
    server.start()
    server.stop()
    yield server
    server.discard()


@contextmanager
def waiting(down: redis.RedisServer, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A command that outlives a second without its server."""
    command, env = words(down.url, *args)
    asked = {**env, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(STARTED_S)
            yield process
        finally:
            process.kill()


def test_an_enqueue_that_waits_for_its_result_waits_for_the_store_too(down: redis.RedisServer) -> None:
    with waiting(down, "enqueue", "greet", "--wait", "600") as process:
        down.start()
        assert process.stdout is not None
        id = process.stdout.readline().strip()
        assert run(down.url, "job", id).returncode == 0


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["claim", "--agent", "a1", "--wait", "20"], 8),
        (["drain", "--all", "--wait", "--timeout", "600"], 0),
        (["flow", "show", "01a1edc4-a5ea-70c6-9547-14753b26fc00", "--wait", "--timeout", "600"], 3),
    ],
    ids=["claim", "drain", "flow"],
)
def test_a_command_that_waits_waits_for_the_store_too(down: redis.RedisServer, args: list[str], code: int) -> None:
    with waiting(down, *args) as process:
        down.start()
        assert process.wait(WITHIN_S) == code


@pytest.mark.parametrize(
    "args",
    [["claim", "--agent", "a1", "--wait", "1"], ["drain", "--all", "--wait", "--timeout", "1"]],
    ids=["claim", "drain"],
)
def test_and_no_longer_than_it_was_told_to(args: list[str]) -> None:
    """Its URL allows ten minutes, and the test one."""
    ran = run(SCHEMES[0].format(port=free_port()), *args)
    assert (ran.returncode, ran.stdout) == (5, "")
