"""A worker that is told to stop before it works: while its app is imported, by itself or by its child."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Imported for ever by one of the processes that import it, which says so first.
SLOW = """
import os, sys, time
from pathlib import Path

from limpet import Limpet

app = Limpet()

@app.task(name="noop")
async def noop() -> None: ...

if sys.modules["__main__"].__spec__.name == os.environ["SLOW_IN"]:
    Path(os.environ["SLOW_PID"]).write_text(str(os.getpid()))
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""
LOOK, CHILD = "limpet.cli.preflight", "limpet.runtime.child"
WITHIN_S = 60
SLACK_S = 25.0  # of a busy machine, and less than the grace


class Slow:
    """A `limpet worker` whose app takes for ever to import, in a group of its own as a shell starts it."""

    def __init__(self, folder: Path, where: str) -> None:
        (folder / "slow.py").write_text(SLOW)
        self._pid_file = folder / "pid"
        self._log = folder / "stderr"
        self.url = f"sqlite:///{folder / 'jobs.db'}?sync=normal"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        self.env = {**kept, "LIMPET_URL": self.url, "SLOW_IN": where, "SLOW_PID": str(self._pid_file)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "limpet.cli", "worker", "slow:app", "--grace", "30s"],
                env=self.env,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return self._log.read_text()

    def pid(self) -> int:
        """The process that imports; 0 while none does."""
        return int(self._pid_file.read_text() or 0) if self._pid_file.exists() else 0

    def importing(self) -> psutil.Process:
        """The process that imports, once it does."""
        deadline_s = time.monotonic() + WITHIN_S
        while not (pid := self.pid()):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline_s, "nobody imports the app"
            time.sleep(0.01)
        return psutil.Process(pid)


@contextlib.contextmanager
def started(folder: Path, where: str) -> Iterator[Slow]:
    slow = Slow(folder, where)
    try:
        yield slow
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(slow.process.pid, signal.SIGKILL)
        slow.process.wait()


@pytest.mark.parametrize("where", [LOOK, CHILD])
@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_a_worker_that_is_told_to_stop_while_its_app_is_imported_ends_with_0(
    tmp_path: Path, where: str, numbers: list[int]
) -> None:
    with started(tmp_path, where) as slow:
        importing = slow.importing()
        told_s = time.monotonic()
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                slow.process.send_signal(number)
        assert slow.process.wait(WITHIN_S) == 0
        assert time.monotonic() - told_s < SLACK_S, "it waited for the import, or for the grace"
        assert not importing.is_running()
        assert "Traceback" not in slow.said()
        listed = [sys.executable, "-m", "limpet.cli", "workers", "--jsonl"]
        assert subprocess.run(listed, env=slow.env, stdout=subprocess.PIPE, timeout=60, check=False).stdout == b""


@pytest.mark.parametrize("where", [LOOK, CHILD])
def test_a_ctrl_c_in_the_terminal_is_for_the_command_alone(tmp_path: Path, where: str) -> None:
    """A terminal sends it to every process of the group, and to those that are just starting, too."""
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        with started(folder, where) as slow:
            if not hit_while_it_starts(slow):
                continue  # this test was too slow: once more
            assert slow.importing().is_running()
            os.killpg(slow.process.pid, signal.SIGINT)
            assert slow.process.wait(WITHIN_S) == 0
            assert "Traceback" not in slow.said()
            return
    raise AssertionError("no process was ever met while it started")


def hit_while_it_starts(slow: Slow) -> bool:
    """Send SIGINT to every child until the app is imported; whether the importing one was among them."""
    deadline_s = time.monotonic() + WITHIN_S
    hit: set[int] = set()
    while not slow.pid():
        assert slow.process.poll() is None, slow.said()
        assert time.monotonic() < deadline_s
        for child in psutil.Process(slow.process.pid).children():
            hit.add(child.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGINT)
    return slow.pid() in hit
