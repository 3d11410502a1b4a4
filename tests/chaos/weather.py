"""Stores that go away and come back, and the commands that people start on them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from limpet.stores.sqlite.library import library
from tests.chaos.field import PATIENCE_S, ROOT
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.process import fresh_folder

APP = "tests.chaos.chaos_jobs:app"


class Weather(ABC):
    """One store of one engine. It is away until it is told to come."""

    url: str

    @abstractmethod
    def come(self) -> None:
        """Be there, for the first time or again."""

    @abstractmethod
    def go(self) -> None:
        """Be away: refused connections, or a file that nobody may write."""

    @abstractmethod
    def end(self) -> None:
        """Leave nothing behind."""


class ServerWeather(Weather):
    """A server that is not running."""

    def __init__(self, server: redis.RedisServer | postgres.PostgresServer, options: str) -> None:
        self.server = server
        server.start()  # its port is its own from here on, and its data are there
        server.stop()
        self.url = f"{server.url}{options}"

    def come(self) -> None:
        self.server.start()

    def go(self) -> None:
        self.server.stop()

    def end(self) -> None:
        self.server.discard()


class FileWeather(Weather):
    """A file whose folder is not there yet; later one that a stranger holds locked."""

    def __init__(self) -> None:
        self._base = TemporaryDirectory(prefix="limpet-away-")
        self._path = Path(self._base.name) / "mount" / "jobs.db"
        self._stranger: Any = None
        self.url = f"sqlite:///{self._path}?sync=normal"

    def come(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._let_go()

    def go(self) -> None:
        self._stranger = library.connect(str(self._path), isolation_level=None, timeout=60)
        self._stranger.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._let_go()
        self._base.cleanup()

    def _let_go(self) -> None:
        if self._stranger is not None:
            self._stranger.rollback()
            self._stranger.close()
            self._stranger = None


@contextlib.contextmanager
def weather_of(engine: str) -> Iterator[Weather]:
    """A store of this engine that is away; its calls give up after a second."""
    made: Weather
    if engine == "sqlite":
        made = FileWeather()
    elif engine == "redis":
        made = ServerWeather(redis.RedisServer(REDIS, fresh_folder("limpet-redis-"), aof="always"), "?timeout=1")
    else:
        made = ServerWeather(postgres.PostgresServer(POSTGRES), "?timeout=1")
    try:
        yield made
    finally:
        made.end()


class Command:
    """One `limpet` command as a process of its own, with what it wrote."""

    def __init__(self, folder: Path, url: str, words: Sequence[str], **env: str) -> None:
        self.trace = folder / "trace"
        self.log = folder / "stderr"
        told = {"LIMPET_URL": url, "CHAOS_URL": url, "CHAOS_TRACE": str(self.trace), "PYTHONPATH": str(ROOT / "src")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "limpet.cli", *words],
                env={**os.environ, **told, **env},
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def children(self) -> list[int]:
        """The pids of its child processes, as the kernel knows them."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def until(self, what: str, true: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait for something to become true; say what never did."""
        deadline_s = time.monotonic() + within_s
        while not true():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.said()}"
            assert time.monotonic() < deadline_s, f"within {within_s} s: {what}; it said {self.said()}"
            time.sleep(0.02)

    def until_said(self, words: str) -> None:
        self.until(f"it says {words!r}", lambda: words in self.said())

    def started(self) -> int:
        """How many jobs were started."""
        return self.trace.read_text().count("start ") if self.trace.exists() else 0

    def ended(self, within_s: float = PATIENCE_S) -> int:
        """Its exit code."""
        return self.process.wait(within_s)

    def ended_after(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Its exit code, and how many seconds it took after this signal."""
        told_s = time.monotonic()
        self.process.send_signal(number)
        return self.ended(), time.monotonic() - told_s

    def kill(self) -> None:
        """End it and its children, whatever they do."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in reversed([top := psutil.Process(self.process.pid), *top.children(recursive=True)]):
                process.kill()
        self.process.wait()


@contextlib.contextmanager
def command(folder: Path, url: str, *words: str, **env: str) -> Iterator[Command]:
    """A command that is gone afterwards."""
    made = Command(folder, url, words, **env)
    try:
        yield made
    finally:
        made.kill()


def worker(folder: Path, url: str, *words: str) -> contextlib.AbstractContextManager[Command]:
    """`limpet worker` on the app of the chaos tests."""
    return command(folder, url, "worker", APP, *words)
