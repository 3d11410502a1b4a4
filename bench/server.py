"""Runs a Redis server of the bench's own: a free port, a folder on disk, the append-only file as asked."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from bench.meter import ask
from tests.servers.flavours import USUAL, MissingServer, program

START_S = 60.0  # it takes milliseconds; a busy machine may need many seconds


def executable() -> str:
    """The server's program: the one on the PATH, else the one that the development tools bring along."""
    if found := shutil.which("redis-server"):
        return found
    try:
        return str(program(USUAL).path)
    except MissingServer as error:
        raise SystemExit(f"bench: no redis-server on the PATH, and {error}") from error


def version() -> str:
    """Which server that is."""
    said = subprocess.run([executable(), "--version"], capture_output=True, text=True, check=True).stdout
    words = dict(word.split("=", 1) for word in said.split() if "=" in word)
    return f"{said.split()[0]} {words['v']} ({words['malloc']})"


class RedisServer:
    """A fresh server, answering when the block is entered and gone when it is left."""

    def __init__(self, folder: Path, fsync: str = "everysec") -> None:
        self._folder = folder
        self._fsync = fsync
        self.port = 0

    @property
    def url(self) -> str:
        """The server's address, without a database."""
        return f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        # Everything else stays as the server has it, so that the figures can be repeated.
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": "",
            "loglevel": "warning",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([executable(), *words], stdout=subprocess.DEVNULL)
        until_s = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until_s:
                self.__exit__()
                raise SystemExit(f"bench: redis-server did not start on port {self.port}")
            time.sleep(0.005)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()  # the folder goes with it, so there is nothing to save
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return ask(self.url, "PING") == b"PONG"
        except OSError:
            return False
