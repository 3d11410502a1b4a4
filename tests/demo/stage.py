"""Runs the demo as a program of its own, in a folder of the test, and reads what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec

SMALL = "0.05"


class Running:
    """A demo under way: its lines come as it writes them."""

    def __init__(self, folder: Path, *args: str) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
        command = [sys.executable, "-m", "limpet.cli", "demo", "--json", *args]
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.lines: list[str] = []

    def until(self, words: str) -> None:
        """Read on until a line holds these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if words in line:
                return
        raise AssertionError(f"{words!r} was never said: {''.join(self.lines)}")

    def kill(self) -> None:
        """kill -9 of the driver alone."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Whatever the test has seen: the program is gone, and its pipes are closed."""
        self.process.kill()
        with self.process:
            pass

    def ended(self) -> Ended:
        """Wait for its end."""
        with self:
            out, err = self.process.communicate(timeout=300)
        return Ended(self.process.returncode, out, "".join(self.lines) + err)


class Ended:
    """What a demo answered."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.err = err
        self.summary: dict[str, Any] = msgspec.json.decode(out, type=dict[str, Any]) if out else {}


def workers_of(folder: Path) -> list[int]:
    """Live processes that work on the folder's store."""
    asked = subprocess.run(["ps", "-ww", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True)
    return [int(line.split()[0]) for line in asked.stdout.splitlines() if f"{folder}/.demo/jobs.db" in line]
