"""Runs a worker in processes of its own, as `limpet worker` does, with any settings; and kills or measures it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from bench.ours.tasks import REPLY, VICTIM, Inbox
from limpet.runtime.log_setup import LogSettings
from limpet.runtime.settings import WorkerSettings
from limpet.runtime.supervisor import SupervisorSettings, supervise


class WorkerProcess:
    """A supervisor with one child, ready when the block is entered and gone when it is left."""

    def __init__(self, url: str, inbox: Inbox, *, victim: bool = False, **settings: Any) -> None:
        env = {**os.environ, "LIMPET_URL": url, REPLY: inbox.address, **({VICTIM: "1"} if victim else {})}
        command = [sys.executable, "-m", "bench.ours.worker", msgspec.json.encode(settings).decode()]
        self._process = subprocess.Popen(command, env=env, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End supervisor and child at once, as a dying machine would."""
        pids = (self._process.pid, *_children(self._process.pid))  # each has a process group of its own
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def cpu_s(self) -> float:
        """Time that supervisor, child and their threads have spent on a processor."""
        total_ns = 0
        for pid in (self._process.pid, *_children(self._process.pid)):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total_ns += int((task / "schedstat").read_text().split()[0])
        return total_ns / 1e9

    async def idle_cpu_percent(self, seconds: float) -> float:
        """Share of one processor over a stretch in which nothing is asked."""
        before_s, at_s = self.cpu_s(), time.monotonic()
        await asyncio.sleep(seconds)
        return 100 * (self.cpu_s() - before_s) / (time.monotonic() - at_s)


def _children(pid: int) -> list[int]:
    # Each is its thread's: the supervisor starts them in one of its own.
    found = [int(word) for path in Path(f"/proc/{pid}/task").glob("*/children") for word in path.read_text().split()]
    return found + [each for child in found for each in _children(child)]


def main(settings: str) -> int:
    """Supervise one child until told to stop."""
    worker = msgspec.json.decode(settings, type=WorkerSettings)
    return asyncio.run(
        supervise(
            SupervisorSettings(
                app_ref="bench.ours.tasks:app", path=(os.getcwd(),), log=LogSettings(level="WARNING"), worker=worker
            )
        )
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
