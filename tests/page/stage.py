"""Sets the stage for the page's tests: a real server and a real worker on one store, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE_S: Final = 60.0


class Stage:
    """A store in a folder, with whatever runs on it."""

    def __init__(self, folder: Path, settings: str = '[server]\nrate = "100000/s"\n') -> None:
        self._folder = folder
        (folder / "limpet.toml").write_text(settings)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        url = f"sqlite:///{folder}/jobs.db?sync=normal"
        self._env = {**kept, "LIMPET_URL": url, "PYTHONPATH": str(ROOT)}
        self._running: list[subprocess.Popen[bytes]] = []
        self._port = 0
        self.url = ""

    def fill(self, scale: int = 1) -> None:
        """Store what the shop asks for."""
        self.run("tests.page.shop", str(scale))

    def make(self) -> None:
        """Make a store with nothing in it."""
        self.run("limpet.cli", "migrate")

    def run(self, module: str, *words: str) -> bytes:
        """Run a module to its end; what it has said."""
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, cwd=self._folder, env=self._env, check=True, capture_output=True).stdout

    def serve(self) -> subprocess.Popen[bytes]:
        """Start the server, on the same address each time; it takes connections when this returns."""
        process = self._start("serve", "--port", str(self._port), "--json", stdout=subprocess.PIPE)
        assert process.stdout is not None
        self.url = msgspec.json.decode(process.stdout.readline())["listens"]
        self._port = int(self.url.rpartition(":")[2])
        return process

    def work(self) -> subprocess.Popen[bytes]:
        """Start a worker that runs the shop's jobs."""
        return self._start("worker", "tests.page.shop:app", stdout=subprocess.DEVNULL)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        """The status and the JSON that the API answers."""
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        raw = None if body is None else msgspec.json.encode(body)
        request = Request(f"{self.url}/api/v1{path}", raw, headers, method=method)
        try:
            with urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, msgspec.json.decode(answer.read() or b"null")
        except HTTPError as refusal:
            with refusal:
                return refusal.code, msgspec.json.decode(refusal.read() or b"null")

    def read(self, path: str) -> Any:
        """What the API answers at a path."""
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until this is so."""
        end_s = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end_s, "it did not come true"
            time.sleep(0.05)

    def settled(self, scale: int = 1) -> None:
        """Wait until the shop's jobs are where they stay."""

        def at_rest() -> bool:
            stats = self.read("/stats")
            return bool(stats["dead"] >= 4 * scale + 8 and stats["succeeded"] >= 48 * scale and stats["running"] >= 1)

        self.until(at_rest)

    def close(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, *words: str, stdout: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "limpet.cli", *words]
        log = (self._folder / f"{words[0]}-{len(self._running)}.log").open("wb")
        with log:
            process = subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=stdout, stderr=log)
        self._running.append(process)
        return process


@contextmanager
def staged(folder: Path, **more: str) -> Iterator[Stage]:
    """A stage, and its end."""
    stage = Stage(folder, **more)
    try:
        yield stage
    finally:
        stage.close()
