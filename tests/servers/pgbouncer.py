"""A real, private PgBouncer in transaction mode before a PostgreSQL server."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import psycopg

from tests.servers.flavours import ROOT, MissingServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import PrivateServer, fresh_folder, running
from tests.servers.servant import Credentials, open_copy, servant

PGBOUNCER: Final = ROOT / ".venv" / "pgbouncer"  # where tools/pgbouncer.py unpacks Debian's packages
SBIN: Final = "/usr/sbin"  # where packages put it, and not on everybody's PATH
OLDEST: Final = (1, 21)  # the first that can keep prepared statements

SETTINGS: Final[Mapping[str, str]] = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "any",
    "pool_mode": "transaction",
    "max_client_conn": "500",
    "server_round_robin": "1",  # what a transaction leaves behind in its session is not there for the next
    "server_login_retry": "0.2",  # seconds; with 15, a test of an outage would wait for nothing else
}


class PgBouncer(PrivateServer):
    """A pool before `server`; with `prepared`, it keeps so many prepared statements for each of its clients."""

    stop_signal = signal.SIGINT  # it waits for transactions, not for clients

    def __init__(self, server: PostgresServer, *, prepared: int = 0, settings: Mapping[str, str | int] = {}) -> None:
        super().__init__("pgbouncer", fresh_folder("limpet-pgbouncer-"), None)
        self.settings: dict[str, str | int] = {**SETTINGS, "max_prepared_statements": prepared, **settings}
        self._server = server

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def launch(self) -> None:
        settings = {**self.settings, "listen_port": self.port}
        lines = ["[databases]", f"* = host=127.0.0.1 port={self._server.port} user=postgres", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        file = self.folder / "pgbouncer.ini"
        file.write_text("".join(line + "\n" for line in lines))
        servant().give(self.folder)
        super().launch()

    def command(self) -> list[str]:
        return [*program(), str(self.folder / "pgbouncer.ini")]

    def credentials(self) -> Credentials:
        return servant().credentials()

    def discard(self) -> None:
        """End it for good, with its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def show(self, what: str) -> list[dict[str, object]]:
        """What it tells of itself: POOLS, CLIENTS, SERVERS, CONFIG and others."""
        with contextlib.closing(psycopg.connect(self.url_of("pgbouncer"), autocommit=True, connect_timeout=30)) as line:
            answer = line.cursor(row_factory=psycopg.rows.dict_row).execute(f"SHOW {what}".encode())
            return answer.fetchall()

    def answers(self) -> bool:
        try:
            told = {row["key"]: row["value"] for row in self.show("CONFIG")}
        except psycopg.OperationalError:
            return False
        return told["conffile"] == str(self.folder / "pgbouncer.ini")


@contextlib.contextmanager
def pooled(server: PostgresServer, *, prepared: int = 0, **settings: str | int) -> Iterator[PgBouncer]:
    """A PgBouncer before a server for one test alone, with settings as in pgbouncer.ini."""
    with running(PgBouncer(server, prepared=prepared, settings=settings)) as pool:
        yield pool


@cache
def program() -> tuple[str, ...]:
    """The words that start it; LIMPET_TEST_PGBOUNCER names another program."""
    for words in _candidates():
        answer = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
        says = re.search(r"PgBouncer (\d+)\.(\d+)", answer.stdout)
        if says and (int(says[1]), int(says[2])) >= OLDEST:
            return words
    fix = "make .venv/pgbouncer/.ready on Debian, or put one on PATH, or name it in LIMPET_TEST_PGBOUNCER"
    raise MissingServer(f"the tests need a PgBouncer of version {OLDEST[0]}.{OLDEST[1]} or newer and find none: {fix}")


def _candidates() -> Iterator[tuple[str, ...]]:
    named = os.environ.get("LIMPET_TEST_PGBOUNCER")
    if named:
        yield (named,)
    on_path = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), SBIN]))
    if on_path:
        yield (on_path,)
    unpacked = PGBOUNCER / "usr/sbin/pgbouncer"
    if not unpacked.exists():
        return
    folder = PGBOUNCER if servant().reaches(unpacked) else open_copy(PGBOUNCER, "usr")
    # Its own loader with its own libraries, whatever this machine has.
    for loader in sorted(folder.glob("usr/lib/*/ld-linux-*.so.*")):
        yield (str(loader), "--library-path", str(loader.parent), str(folder / "usr/sbin/pgbouncer"))
