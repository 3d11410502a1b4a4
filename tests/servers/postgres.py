"""A real, private PostgreSQL server on a free port, to be killed, frozen and started again at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from tests.servers.installations import PostgresFlavour, copy_data, programs, template
from tests.servers.process import END_S, PrivateServer, Unreachable, fresh_folder
from tests.servers.process import running as running
from tests.servers.servant import Credentials, servant

SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: a kill leaves nothing behind in /dev/shm
    "log_line_prefix": "%m [%p] %a ",
}
# For tests of meaning: a power cut may have all of it.
CARELESS: Final[Mapping[str, str]] = {"fsync": "off", "full_page_writes": "off"}

_numbers = count(1)


class PostgresServer(PrivateServer):
    """A PostgreSQL in a folder: a postmaster and its children."""

    stop_signal = signal.SIGINT  # it sends its clients away; on SIGTERM it would wait for them
    orphan_signal = signal.SIGQUIT  # it ends its children before itself, at once

    def __init__(
        self,
        flavour: PostgresFlavour,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str | int] = {},
        port: int | None = None,
    ) -> None:
        super().__init__(flavour, folder or fresh_folder("limpet-postgres-"), port)
        self.flavour = flavour
        self.settings: dict[str, str | int] = {**SETTINGS, **settings}

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    # -- life

    def launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        servant().give(self.folder)
        if not self.data.exists():
            copy_data(template(self.flavour), self.data)
        super().launch()

    def command(self) -> list[str]:
        settings = {**self.settings, "port": self.port, "unix_socket_directories": self.folder}
        words = [f"--{name}={value}" for name, value in settings.items()]
        return [str(programs(self.flavour) / "postgres"), "-D", str(self.data), *words]

    def credentials(self) -> Credentials:
        return servant().credentials()

    def kill(self) -> None:
        """End it as a power cut would end its processes: no last write, no goodbye, nothing tidied up.

        Its children die with it. Orphans would go on serving their clients, and as long as one of them has the
        shared memory, a new server refuses to start.
        """
        if self.alive:
            self._stand_still()
            family = self._signal(signal.SIGKILL)
            super().kill()
            _until(f"all of {family} are dead", lambda: all(_is_dead(process) for process in family))

    def discard(self) -> None:
        """End it for good, as fast as it can be done without leaving a trace on this machine."""
        self._end(signal.SIGQUIT)
        if (identity := self._shared_memory()) is not None:  # of one that was killed: the next start would free it
            subprocess.run(["ipcrm", "-m", identity], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def freeze(self) -> None:
        """Stop it in its tracks: the kernel still accepts connections, and nobody answers them."""
        self._stand_still()
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _stand_still(self) -> None:
        """Stop the postmaster, so that no child is born unseen: one that is being born when it hears of it still is."""
        os.kill(self.pid, signal.SIGSTOP)
        _until("the postmaster stands still", lambda: not _runs(psutil.Process(self.pid)))

    def _signal(self, number: int) -> list[psutil.Process]:
        """Send a signal to the server and all its children; say who they are."""
        if not self.alive:
            return []
        postmaster = psutil.Process(self.pid)
        family = [*postmaster.children(), postmaster]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return family

    def _shared_memory(self) -> str | None:
        """The segment that a killed server left behind, as its own file names it."""
        lines = self._pid_file()
        return lines[6].split()[1] if len(lines) > 6 and lines[6].strip() else None

    # -- asking

    def ask(self, query: str, *values: object, timeout_s: float = 30.0) -> list[tuple[Any, ...]]:
        """One statement on a connection of its own, committed by itself; an error of the server is raised."""
        try:
            line = psycopg.connect(self.url, autocommit=True, connect_timeout=max(2, int(timeout_s)))  # its least is 2
        except psycopg.OperationalError as error:
            raise Unreachable(f"port {self.port}: {error}") from error
        with contextlib.closing(line):
            answer = line.execute(query.encode(), values or None)
            return answer.fetchall() if answer.description else []

    def answers(self) -> bool:
        """True when it is this process that answers, with what it remembers recovered."""
        lines = self._pid_file()
        if len(lines) < 8 or lines[0] != str(self.pid) or lines[7].strip() != "ready":
            return False
        try:
            return self.ask("SELECT 1") == [(1,)]
        except Unreachable:
            return False

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []


def _until(what: str, true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + END_S
    while not true():
        assert time.monotonic() < deadline_s, f"it never happens that {what}"
        time.sleep(0.001)


def _runs(process: psutil.Process) -> bool:
    """False once it stands still, or waits for nothing but that its parent hears of its end."""
    return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def _is_dead(process: psutil.Process) -> bool:
    """True when it is gone, or waits for nothing but that its parent hears of it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- for tests: one that all share, one for each that wants to kill it, and empty databases


@cache
def shared(flavour: PostgresFlavour) -> PostgresServer:
    """The server of this flavour that all tests of a process share, each in a schema or database of its own.

    It never flushes: meaning is tested on it, not durability.
    """
    return PostgresServer(flavour, settings=CARELESS).start()


@contextlib.contextmanager
def own(flavour: PostgresFlavour, **settings: str | int) -> Iterator[PostgresServer]:
    """A server for one test alone, to be killed and started again, with settings as in postgresql.conf."""
    with running(PostgresServer(flavour, settings=settings)) as server:
        yield server


def fresh_database(server: PostgresServer) -> str:
    """The URL of a new, empty database; some 8 MB of memory until the server ends."""
    name = f"db{next(_numbers)}"
    server.ask(f"CREATE DATABASE {name}")
    return server.url_of(name)


LEFT = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


def bury(url: str) -> None:
    """Wait until the server has sent the dead away who were all that used this database.

    It does what they had sent last, and asks only then whether anybody waits for it.
    """
    with psycopg.connect(url, autocommit=True) as conn:
        _until(f"nobody is left in {url}", lambda: conn.execute(LEFT).fetchone() == (0,))
