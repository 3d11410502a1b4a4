"""Commands on a server that is not there: told at once, once, and in JSON where that was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
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
    assert first.startswith("limpet: ")
    assert "could not be reached (" in first
    assert fix == ["  see whether the server runs and the URL is right"]
    assert ("not stored" in first) is (args[0] == "enqueue")
    ran = run(url, *args, "--json")
    assert (ran.returncode, ran.stdout) == (5, "")
    assert msgspec.json.decode(ran.stderr)["error"]["code"] == "store_unreachable"


def test_an_app_that_sets_up_logging_adds_nothing_to_the_error(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging\nlogging.basicConfig()\nfrom limpet import Limpet\napp = Limpet()\n"
    )
    url = SCHEMES[0].format(port=free_port())
    ran = run(url, "enqueue", "greet", "--app", f"{tmp_path / 'shop.py'}:app", "--json")
    assert (ran.returncode, ran.stdout) == (5, "")
    assert "not stored" in msgspec.json.decode(ran.stderr)["error"]["message"]


def test_an_enqueue_that_waits_for_its_result_waits_for_the_store_too() -> None:
    server = redis.RedisServer(REDIS, fresh_folder("limpet-redis-"))
    server.start()
    server.stop()
    command, env = words(server.url, "enqueue", "greet", "--wait", "600")
    asked = {**env, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            server.start()
            assert process.stdout is not None
            id = process.stdout.readline().strip()
            assert run(server.url, "job", id).returncode == 0
        finally:
            process.kill()
            server.discard()
