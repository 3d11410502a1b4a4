"""The bench's own Redis server comes and goes, says what it costs, and a foreign one is never emptied of data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import meter
from bench.ground import elsewhere, redis, scratch
from bench.server import RedisServer, version


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with RedisServer(tmp_path) as server:
        yield server.url


def test_a_server_logs_as_asked_and_is_gone_after_the_block(tmp_path: Path) -> None:
    with RedisServer(tmp_path, fsync="always") as server:
        assert meter.ask(server.url, "SET", "a", "1") == b"OK"
        assert meter.info(server.url, "persistence")["aof_enabled"] == "1"
        assert list(tmp_path.glob("append*"))
    with pytest.raises(ConnectionRefusedError):
        meter.ask(server.url, "PING")


def test_each_run_has_an_empty_server_of_its_own() -> None:
    for _ in range(2):
        with scratch() as folder, redis("everysec")(folder) as template:
            assert meter.info(template.format(n=0), "keyspace") == {}
            meter.ask(template.format(n=1), "SET", "left", "behind")
        assert not folder.exists()


def test_the_meter_reads_time_and_memory_of_the_server(url: str) -> None:
    assert meter.cpu_s(url) >= meter.server_cpu_s(url) > 0
    assert meter.server_cpu_s("sqlite:////tmp/jobs.db") == 0
    before = meter.memory_bytes(url)
    meter.ask(url, "SET", "large", "x" * 1_000_000)
    assert meter.memory_bytes(url) - before >= 1_000_000


def test_the_meter_chooses_a_database_and_says_what_is_refused(url: str) -> None:
    meter.ask(f"{url}/1", "SET", "a", "1")
    assert meter.info(url, "keyspace").keys() == {"db1"}
    with pytest.raises(OSError, match="refuses NONSENSE"):
        meter.ask(url, "NONSENSE")


def test_a_foreign_server_with_data_is_left_alone(url: str, tmp_path: Path) -> None:
    meter.ask(f"{url}/1", "SET", "precious", "1")
    with pytest.raises(SystemExit, match="hold data"), elsewhere(url)(tmp_path):
        pass
    assert meter.ask(f"{url}/1", "GET", "precious") == b"1"


def test_a_foreign_server_is_left_as_it_was(url: str, tmp_path: Path) -> None:
    meter.ask(f"{url}/2", "SET", "precious", "1")
    with elsewhere(f"{url}/")(tmp_path) as template:
        for number in range(2):
            meter.ask(template.format(n=number), "SET", "a", "1")
    assert meter.info(url, "keyspace").keys() == {"db2"}


def test_the_server_says_its_version() -> None:
    assert version().split()[0] in {"Redis", "Valkey"}
