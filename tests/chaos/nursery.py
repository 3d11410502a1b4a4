"""Forks lives of a program on request, each of which may be killed: everything is imported once, nothing is open.

The program's module says how a life is lived, and ends with `nurse(Life, live)`; a test asks for lives with `Nursery`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
L = TypeVar("L", bound=Struct)


class Nursery:
    """The program that forks."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def live(self, life: Struct) -> int:
        """One life; its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(life).decode() + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def nurse(kind: type[L], live: Callable[[L], None]) -> None:
    """Be that program: read lives, one line of JSON each, and say how each ended, as a process says it."""
    for line in sys.stdin:
        life = msgspec.json.decode(line, type=kind)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                live(life)
                code = 0
            finally:
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        sys.stdout.flush()
