"""The test servers do what tests rely on: they keep what they should, and end with whoever started them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.errors import DuplicatePreparedStatement

from tests.servers.flavours import REDIS, ROOT, MissingServer, program
from tests.servers.fleet import cluster, sentinel, until
from tests.servers.installations import POSTGRES, programs
from tests.servers.pgbouncer import pooled
from tests.servers.postgres import PostgresServer, fresh_database, own, shared
from tests.servers.process import Unreachable, fresh_folder
from tests.servers.redis import RedisServer, running
from tools.debian import unpack

pytestmark = [pytest.mark.redis, pytest.mark.postgres]


def test_a_killed_server_comes_back_on_its_port_with_what_was_acknowledged(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path, aof="everysec")) as server:
        port, pid = server.port, server.pid
        server.ask("SET", "kept", "yes")
        server.kill()
        with pytest.raises(Unreachable):
            server.ask("PING")
        server.start()
        assert (server.port, server.ask("GET", "kept")) == (port, b"yes")
        assert server.pid != pid


def test_a_frozen_server_is_silent_until_it_is_thawed(tmp_path: Path) -> None:
    with running(RedisServer(REDIS, tmp_path)) as server:
        server.freeze()
        with pytest.raises(Unreachable, match="timed out"):
            server.ask("PING", timeout_s=0.2)
        server.thaw()
        assert server.ask("PING") == b"PONG"


def test_a_server_ends_with_a_process_that_was_killed(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer
print(RedisServer(REDIS, Path(sys.argv[1])).start().port, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    orphan = RedisServer(REDIS, tmp_path, port=int(answer.stdout))
    until("nobody listens there any more", lambda: not listens(orphan))


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
    with running(RedisServer(REDIS, tmp_path / "master")) as master:
        watcher = sentinel(master, tmp_path / "sentinel")
        try:
            until("the sentinel knows the master", lambda: watcher.master_port() == master.port)
        finally:
            watcher.kill()
    nodes = cluster(REDIS, tmp_path / "cluster", masters=2)
    try:
        assert all(b"cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in nodes)
    finally:
        for node in nodes:
            node.kill()


# -- PostgreSQL


def test_a_killed_postgres_comes_back_on_its_port_with_what_was_committed() -> None:
    with own(POSTGRES) as server:
        port, pid = server.port, server.pid
        server.ask("CREATE TABLE kept (word text)")
        with closing(psycopg.connect(server.url)) as open_line, closing(psycopg.connect(server.url)) as line:
            open_line.execute("INSERT INTO kept VALUES ('never committed')")
            line.execute("INSERT INTO kept VALUES ('yes')")
            line.commit()
            family = psutil.Process(pid).children()
            server.kill()
            with pytest.raises(Unreachable):
                server.ask("SELECT 1")
            with pytest.raises(psycopg.OperationalError):
                line.execute("SELECT 1")
        assert len(family) > 2, "there were children to kill"
        assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)
        server.start()
        assert (server.port, server.ask("SELECT * FROM kept")) == (port, [("yes",)])
        assert server.pid != pid
        assert "was not properly shut down" in server.log()


def test_a_shared_postgres_is_of_its_version_and_gives_databases_that_are_empty() -> None:
    server = shared(POSTGRES)
    [(version,)] = server.ask("SHOW server_version_num")
    assert int(version) // 10_000 == int(POSTGRES.removeprefix("postgres-"))
    assert server.ask("SHOW fsync") == [("off",)]
    first, second = fresh_database(server), fresh_database(server)
    with psycopg.connect(first, autocommit=True) as line:
        line.execute("CREATE TABLE jobs ()")
    with psycopg.connect(second, autocommit=True) as line:
        assert line.execute("SELECT to_regclass('jobs')").fetchone() == (None,)


def test_a_postgres_that_is_stopped_sends_its_clients_away_and_needs_no_recovery() -> None:
    with own(POSTGRES, synchronous_commit="off") as server:
        assert server.ask("SHOW fsync") == [("on",)], "a server of one's own keeps its promises"
        assert server.ask("SHOW synchronous_commit") == [("off",)]
        with closing(psycopg.connect(server.url)) as line:
            line.execute("CREATE TABLE kept ()")
            line.commit()
            server.stop()
            with pytest.raises(psycopg.errors.AdminShutdown):
                line.execute("SELECT 1")
        server.start()
        assert server.ask("SELECT count(*) FROM kept") == [(0,)]
        assert "was not properly shut down" not in server.log()


def test_a_frozen_postgres_is_silent_until_it_is_thawed() -> None:
    with own(POSTGRES) as server, closing(psycopg.connect(server.url)):
        server.freeze()
        children = psutil.Process(server.pid).children()  # one of them serves a client
        still = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}  # one that ended is not seen off by a frozen parent
        until("they stand still", lambda: {process.status() for process in children} <= still)
        with pytest.raises(Unreachable, match="timeout"):
            server.ask("SELECT 1", timeout_s=2)
        server.thaw()
        assert server.ask("SELECT 1") == [(1,)]


def test_a_postgres_leaves_nothing_behind() -> None:
    with own(POSTGRES) as server:
        [identity] = [identity for identity, maker in segments().items() if maker == server.pid]
        server.kill()
        assert identity in segments(), "a kill tidies nothing up"
    assert identity not in segments()
    assert not server.folder.exists()


def segments() -> dict[int, int]:
    """The pieces of shared memory on this machine and the pids of their makers, as the kernel lists them."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(identity): int(maker) for _, identity, _, _, maker, *_ in rows}


def test_a_postgres_ends_with_a_process_that_was_killed() -> None:
    code = """
import os, signal
from tests.servers.installations import POSTGRES
from tests.servers.postgres import PostgresServer
server = PostgresServer(POSTGRES).start()
print(server.pid, server.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    variable = "LIMPET_TEST_" + POSTGRES.replace("-", "_").upper()
    environment = {**os.environ, variable: str(programs(POSTGRES))}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    pid, folder = answer.stdout.split()
    until("its processes are gone", lambda: not psutil.pid_exists(int(pid)))
    shutil.rmtree(folder)


def test_a_postgres_that_does_not_start_says_why() -> None:
    with pytest.raises(Unreachable, match='invalid value for parameter "shared_buffers": "none"'):
        PostgresServer(POSTGRES, settings={"shared_buffers": "none"}).start()


def test_a_missing_postgres_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.installations._candidates", lambda flavour: iter(()))
    with pytest.raises(MissingServer, match=r"make \.venv/postgres-15/\.ready"):
        programs.__wrapped__("postgres-15")


# -- machines that lack something


@pytest.mark.parametrize("release", [None, "bookworm"])
def test_without_apt_get_it_is_said_and_nothing_is_unpacked(
    release: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not unpack(["pgbouncer"], tmp_path / "target", release)
    assert capsys.readouterr().err == "this machine has no apt-get, so Debian's packages cannot be unpacked\n"
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("tool", ["pgbouncer", "postgres_15", "redis_7"])
def test_a_server_that_cannot_be_brought_is_named_with_what_to_do(tool: str, tmp_path: Path) -> None:
    """On a machine that has none and no apt-get: a checkout with nothing in its .venv, and an empty PATH."""
    for part in ("tools", "tests/servers"):
        shutil.copytree(ROOT / part, tmp_path / part)
    name = tool.replace("_", "-")
    code = (
        "import runpy, sys; from tests.servers import installations, pgbouncer; "
        "installations.DEBIAN = installations.POSTGRES_15; pgbouncer.SBIN = '.'; "
        f"sys.argv = ['{tool}']; runpy.run_path('tools/{tool}.py', run_name='__main__')"
    )
    env = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert "this machine has no apt-get" in answer.stderr
    assert f"make .venv/{name}/.ready on Debian, or " in answer.stderr
    assert "Traceback" not in answer.stderr


def test_data_lies_elsewhere_where_dev_shm_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.process.MEMORY", tmp_path / "missing")
    folder = fresh_folder("limpet-test-")
    assert folder.is_dir()
    assert not folder.is_relative_to("/dev/shm")


# -- PgBouncer


def test_a_pool_lends_a_connection_for_a_transaction_and_no_longer() -> None:
    with pooled(shared(POSTGRES), default_pool_size=1) as pool:
        assert ("pool_mode", "transaction") in {(row["key"], row["value"]) for row in pool.show("CONFIG")}
        with closing(psycopg.connect(pool.url)) as first, closing(psycopg.connect(pool.url)) as second:
            pids = []
            for line in (first, second, first):
                pids += line.execute("SELECT pg_backend_pid()").fetchall()
                line.commit()
            assert len(set(pids)) == 1, "both use the one connection in turn, and neither waits for the other to leave"


def test_a_pool_keeps_prepared_statements_only_where_it_is_told_to() -> None:
    def prepare_on_two(url: str) -> None:
        with closing(psycopg.connect(url)) as first, closing(psycopg.connect(url)) as second:
            for line in (first, second, first):
                line.execute("SELECT %s + 1", [1], prepare=True)
                line.commit()

    with pooled(shared(POSTGRES), default_pool_size=1) as pool, pytest.raises(DuplicatePreparedStatement):
        prepare_on_two(pool.url)
    with pooled(shared(POSTGRES), default_pool_size=1, prepared=10) as pool:
        prepare_on_two(pool.url)


def test_a_pool_survives_its_server_and_serves_again_when_that_is_back() -> None:
    with own(POSTGRES) as server, pooled(server) as pool:
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(pool.url, connect_timeout=2).close()
        server.start()
        with closing(psycopg.connect(pool.url)) as line:
            assert line.execute("SELECT 1").fetchone() == (1,)
