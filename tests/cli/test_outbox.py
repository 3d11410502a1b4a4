"""The relay as a program: it makes its tables, relays once or until it is told to stop, and says what is left."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import Limpet, UsageError
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.outbox import parse_outbox
from limpet.outbox.table import open_table
from limpet.stores.extras import install_line
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import fresh_database
from tests.servers.postgres import shared as shared_postgres
from tests.servers.redis import RedisServer, own

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

IDS = IdMaker()


class Shop:
    """A user's program and its database. Only commands, in processes of their own, touch the file otherwise."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.file = folder / "app.db"
        self.url = server.url
        self.namespace = id_text(IDS.make(1))
        self.outbox = f"sqlite:///{self.file}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        self.env = {
            **kept,
            "LIMPET_URL": self.url,
            "LIMPET_NAMESPACE": self.namespace,
            "LIMPET_OUTBOX": self.outbox,
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "limpet.cli", *words]
        return subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )

    def answer(self, *words: str) -> Any:
        """What a command says in JSON."""
        ran = self.run(*words, "--json")
        assert ran.stdout, ran.stderr
        return msgspec.json.decode(ran.stdout)

    def order(self, count: int = 1, **options: Any) -> list[str]:
        """So many orders, each with a job in its transaction; the ids."""
        app = Limpet(self.url, namespace=self.namespace, outbox=self.outbox)

        @app.task(name="receipt")
        def receipt(order: int) -> None: ...

        ids = []
        with contextlib.closing(sqlite3.connect(self.file)) as conn:
            for number in range(count):
                ids.append(receipt.options(conn=conn, **options).enqueue_sync(number).id)
                conn.commit()
        return ids


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server as people should run it, about which a relay has nothing to say."""
    with own(REDIS, aof="everysec") as server:
        yield server


@pytest.fixture
def shop(tmp_path: Path, server: RedisServer) -> Shop:
    return Shop(tmp_path, server)


@pytest.fixture
def ready(shop: Shop) -> Shop:
    assert shop.run("outbox", "--create").returncode == 0
    return shop


def test_the_tables_are_made_once_and_the_data_stays(shop: Shop) -> None:
    assert shop.answer("outbox", "--create") == {
        "outbox": shop.outbox,
        "namespace": shop.namespace,
        "created": True,
    }
    shop.order()
    again = shop.run("outbox", "--create")
    assert (again.returncode, again.stderr) == (0, f"the tables are in {shop.outbox}\n")
    assert shop.answer("outbox", "--once")["relayed"] == 1


def test_the_statements_are_printed_for_other_peoples_migrations(shop: Shop) -> None:
    said = shop.run("outbox", "--sql").stdout
    assert not shop.file.exists()
    with contextlib.closing(sqlite3.connect(shop.file)) as conn:
        conn.executescript(said)
    shop.order()
    assert shop.answer("outbox", "--once")["relayed"] == 1
    postgres = shop.run("outbox", "--sql", "--outbox", "postgresql://nobody.example/app")
    assert "GENERATED ALWAYS AS IDENTITY" in postgres.stdout


def test_a_missing_table_is_named_with_its_remedy(shop: Shop) -> None:
    sqlite3.connect(shop.file).close()
    shop.file.touch()
    ran = shop.run("outbox", "--once")
    assert ran.returncode == 2
    assert "has no table limpet_outbox\n  limpet outbox --create" in ran.stderr


def test_once_relays_what_is_there_and_says_what_it_did(ready: Shop) -> None:
    ids = ready.order(3)
    answer = ready.answer("outbox", "--once", "--batch", "2")
    assert answer == {
        "outbox": ready.outbox,
        "namespace": ready.namespace,
        "url": ready.url,
        "relayed": 3,
        "duplicates": 0,
        "waiting": 0,
        "failed": 0,
    }
    assert [job["id"] for job in ready.answer("jobs")["jobs"]] == list(reversed(ids))
    ran = ready.run("outbox", "--once")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "0 relayed, 0 of them duplicates; 0 wait, 0 are set aside\n"


def test_what_was_set_aside_is_listed_and_put_back(ready: Shop) -> None:
    parent = id_text(IDS.make(2))
    (orphan,) = ready.order(after=[parent])
    ran = ready.run("outbox", "--once", "--json")
    assert ran.returncode == 1
    assert msgspec.json.decode(ran.stdout)["failed"] == 1
    ran = ready.run("outbox", "--once")
    assert ran.returncode == 1  # it is not forgotten
    assert "--retry-failed puts them back" in ran.stderr
    (failed,) = ready.answer("outbox", "--failed")["failed"]
    assert (failed["id"], failed["task"]) == (orphan, "receipt")
    assert f"waits for job {parent}, which is not stored" in failed["error"]
    assert orphan in ready.run("outbox", "--failed").stdout
    ready.run("enqueue", "receipt", '{"order": 1}', "--id", parent)
    assert ready.answer("outbox", "--retry-failed")["retried"] == 1
    assert ready.run("outbox", "--once").returncode == 0
    assert ready.answer("outbox", "--failed") == {"failed": []}


def test_jobs_of_a_draining_queue_wait_and_that_is_not_success(ready: Shop) -> None:
    assert ready.run("enqueue", "receipt", '{"order": 1}').returncode == 0  # a queue exists by use
    assert ready.run("drain", "default").returncode == 0
    ready.order(2)
    ran = ready.run("outbox", "--once", "--json")
    assert ran.returncode == 1
    assert msgspec.json.decode(ran.stdout)["waiting"] == 2
    assert ready.run("resume", "default").returncode == 0
    assert ready.answer("outbox", "--once")["relayed"] == 2


@contextlib.contextmanager
def started(shop: Shop, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "limpet.cli", "outbox", *words]
    process = subprocess.Popen(
        command, env=shop.env, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def hear(process: subprocess.Popen[str], word: str) -> str:
    """Read the log until a line has this word."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return line
    raise AssertionError(f"it ended without saying {word!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_relays_until_it_is_told_to_stop(ready: Shop, number: int) -> None:
    with started(ready) as process:
        hear(process, "relay started")
        ready.order(1)
        assert "jobs=1" in hear(process, "relayed")
        process.send_signal(number)
        hear(process, "relay ended relayed=1 duplicates=0 failed=0")
        assert hear(process, "relayed") == "1 relayed, 0 of them duplicates\n"
        assert process.wait(60) == 0
    assert len(ready.answer("jobs")["jobs"]) == 1


def test_programs_read_its_log(ready: Shop) -> None:
    with started(ready, "--json") as process:
        line = msgspec.json.decode(hear(process, "relay started"))
        assert (line["event"], line["logger"]) == ("relay started", "limpet.outbox")
        ready.order(1)
        line = msgspec.json.decode(hear(process, '"relayed"'))
        assert (line["event"], line["jobs"]) == ("relayed", 1)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        banner = msgspec.json.decode(process.stdout.read())
        assert (banner["outbox"], banner["url"], banner["pid"]) == (ready.outbox, ready.url, process.pid)


# -- which outbox, which store


def test_the_settings_of_an_app_hold_and_flags_come_first(ready: Shop, tmp_path: Path) -> None:
    ready.order(1)
    (tmp_path / "shop.py").write_text(
        "from limpet import Limpet\n"
        f"app = Limpet({ready.url!r}, namespace={ready.namespace!r}, outbox={ready.outbox!r})\n"
    )
    for name in ("URL", "NAMESPACE", "OUTBOX"):
        del ready.env[f"LIMPET_{name}"]
    other = ready.answer("outbox", "shop:app", "--once", "--namespace", "other")
    assert (other["namespace"], other["relayed"]) == ("other", 0)
    answer = ready.answer("outbox", "shop:app", "--once")
    assert (answer["namespace"], answer["relayed"]) == (ready.namespace, 1)


def test_without_an_outbox_it_asks_which(shop: Shop) -> None:
    del shop.env["LIMPET_OUTBOX"]
    ran = shop.run("outbox")
    assert ran.returncode == 2
    assert "which outbox?" in ran.stderr


def test_a_store_in_the_same_file_needs_no_relay(shop: Shop) -> None:
    ran = shop.run("outbox", "--once", "--url", shop.outbox)
    assert ran.returncode == 2
    assert "no outbox is needed" in ran.stderr


def test_a_store_in_memory_is_refused(ready: Shop) -> None:
    ran = ready.run("outbox", "--once", "--url", "sqlite://")
    assert ran.returncode == 2
    assert "a store in memory" in ran.stderr


def test_a_side_that_is_away_at_the_start_is_said(ready: Shop) -> None:
    ran = ready.run("outbox", "--once", "--url", "redis://127.0.0.1:1?timeout=0.2")
    assert ran.returncode == 5
    ran = ready.run("outbox", "--once", "--outbox", "postgresql://me:secret@127.0.0.1:1/app")
    assert ran.returncode == 5
    assert "postgresql://me:***@127.0.0.1:1/app cannot be reached" in ran.stderr
    assert "secret" not in ran.stderr


def test_a_postgresql_url_that_cannot_be_read_is_refused(ready: Shop) -> None:
    ran = ready.run("outbox", "--once", "--outbox", "postgresql://me:secret@db/app?nonsense=1")
    assert ran.returncode == 2
    assert "nonsense" in ran.stderr
    assert "secret" not in ran.stderr


def test_config_says_where_the_outbox_is(shop: Shop) -> None:
    shop.env["LIMPET_OUTBOX"] = "postgresql://me:secret@db/app"
    shown = {"value": "postgresql://me:***@db/app", "source": "LIMPET_OUTBOX"}
    assert shop.answer("config")["outbox"] == shown
    assert "outbox     postgresql://me:***@db/app  from LIMPET_OUTBOX" in shop.run("config").stdout


def test_an_outbox_in_postgresql(shop: Shop) -> None:
    shop.env["LIMPET_OUTBOX"] = fresh_database(shared_postgres(POSTGRES))
    assert shop.run("outbox", "--create").returncode == 0
    assert shop.answer("outbox", "--once")["relayed"] == 0


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "limpet.outbox.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match="needs a package that is not installed") as caught:
        open_table(parse_outbox("postgresql://db/app"), "default")
    assert caught.value.fix == install_line("postgres")
