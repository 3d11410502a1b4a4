"""Runs a command in a process of its own, on a pseudo-terminal of 24 rows and 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

WITHIN_S = 60.0
ROWS, COLUMNS = 24, 80
# The first terminal that the leader of a new session opens is the one whose Ctrl-C it hears.
ON_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(terminal, number)
os.execv(sys.executable, [sys.executable, "-m", "limpet.cli", *sys.argv[2:]])
"""
CTRL_C, CTRL_D = "\x03", "\x04"


class OnTerminal:
    """`limpet …` with a person in front of it."""

    def __init__(self, url: str, *words: str, **variables: str) -> None:
        self._main, self._inner = pty.openpty()  # both open until the end: without a holder the terminal is gone
        fcntl.ioctl(self._inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.settings = termios.tcgetattr(self._inner)
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, os.ttyname(self._inner), *words],
            env={**os.environ, "LIMPET_URL": url, "TERM": "xterm", "NO_COLOR": "1", **variables},
            start_new_session=True,
        )
        self.said = ""

    def hear(self) -> None:
        """Take what it says next, and fail if it ends instead."""
        if not select.select([self._main], [], [], 1.0)[0]:
            assert self.process.poll() is None, self.said[-4_000:]
        else:
            self.said += os.read(self._main, 65_536).decode(errors="replace")

    def rest(self) -> str:
        """What it said last."""
        while select.select([self._main], [], [], 0)[0]:
            self.said += os.read(self._main, 65_536).decode(errors="replace")
        return self.said

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def asked(self, question: str) -> None:
        """Wait for a question."""
        end_s = time.monotonic() + WITHIN_S
        while not self.said.endswith(question):
            assert time.monotonic() < end_s, self.said[-4_000:]
            self.hear()

    def answered(self, question: str, answer: str) -> str:
        """Type a line at a question; what was said until then, since the line before."""
        self.asked(question)
        said, self.said = self.said, ""
        self.type(answer if answer in (CTRL_C, CTRL_D) else f"{answer}\n")
        return plain(said)

    def ended(self, code: int) -> str:
        """What it said at its end, with this exit code; the terminal is as it was."""
        try:
            assert self.process.wait(WITHIN_S) == code, self.rest()
            assert termios.tcgetattr(self._inner) == self.settings
            return plain(self.rest())
        finally:
            self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._main >= 0:
            os.close(self._main)
            os.close(self._inner)
        self._main = -1


def plain(said: str) -> str:
    """The text, without what moves a cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said).replace("\r", "")
