"""Runs `limpet serve` and workers in JavaScript as people start them, each a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "examples" / "javascript" / "worker.mjs"


def node() -> str:
    """The program that runs JavaScript; a machine without it fails, since what it would show is then unknown."""
    found = shutil.which("node")
    if found is None:
        pytest.fail("node is not on the PATH, and these tests run a worker in JavaScript: install Node 18 or newer")
    return found


class Programs:
    """A server on one store, on the same address after each start, and the workers that work through it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        self._env = {**kept, "LIMPET_URL": url}
        self._port = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self.listens = ""

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the server; it takes connections when this returns."""
        command = [sys.executable, "-m", "limpet.cli", "serve", "--port", str(self._port), "--json"]
        with self._log() as log:
            process = self._start(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        banner: dict[str, Any] = msgspec.json.decode(process.stdout.readline())
        self.listens = banner["listens"]
        self._port = int(self.listens.rpartition(":")[2])
        return process

    def worker(self, lease_s: float, slots: int = 4) -> subprocess.Popen[bytes]:
        """Start a worker."""
        more = {"LIMPET_API": self.listens, "LEASE": str(lease_s), "SLOTS": str(slots)}
        with self._log() as log:
            return self._start([node(), str(WORKER)], more, stdout=log, stderr=log)

    def said(self) -> list[str]:
        """What all of them have said so far, line by line."""
        return [line for log in self._logs for line in log.read_text().splitlines()]

    def close(self) -> None:
        """End those that still run, frozen or not."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, command: list[str], more: dict[str, str] | None = None, **pipes: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, env={**self._env, **(more or {})}, cwd=self._folder, **pipes)
        self._started.append(process)
        return process

    @contextmanager
    def _log(self) -> Iterator[IO[bytes]]:
        self._logs.append(self._folder / f"program-{len(self._logs)}.log")
        with self._logs[-1].open("wb") as log:
            yield log
