"""Has the terminal for itself: a page of its own, keys as they are pressed, and the terminal as it was at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from limpet.cli.top.ink import Line, painted

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"  # the other page, without a cursor, empty
_LEAVE: Final = "\x1b[0m\x1b[?25h\x1b[?1049l"

# What terminals send for keys that are no letters.
_KEYS: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "esc",
}
_LONGEST: Final = max(map(len, _KEYS))


def keys_of(typed: str) -> Iterator[str]:
    """The keys in what a terminal has sent at once; sequences that mean nothing here are left out."""
    at = 0
    while at < len(typed):
        for size in range(_LONGEST, 0, -1):
            part = typed[at : at + size]
            unknown = part == "\x1b" and typed[at + 1 : at + 2] in ("[", "O")
            if part in _KEYS and not unknown:
                yield _KEYS[part]
                at += size
                break
        else:
            if typed[at] == "\x1b":
                at += 2
                while at < len(typed) and not typed[at - 1].isalpha() and typed[at - 1] != "~":
                    at += 1
            else:
                if typed[at].isprintable():
                    yield typed[at]
                at += 1


class Screen:
    """The terminal of this process, while the command runs."""

    def __init__(self, *, colours: bool) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._colours = colours
        self._drawn: list[str] = []

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        columns, rows = os.get_terminal_size(self._out)
        return max(20, columns), max(5, rows)

    @contextmanager
    def taken(self, pressed: Callable[[str], None], changed: Callable[[], None]) -> Iterator[None]:
        """Have it for the block. `pressed` is told each key, `changed` that the size is another one."""
        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._in)

        def read() -> None:
            typed = os.read(self._in, 1_024).decode(errors="ignore")
            for key in keys_of(typed) if typed else ("hangup",):
                pressed(key)

        def enter() -> None:
            tty.setcbreak(self._in)
            self._write(_ENTER)
            self._drawn = []

        def leave() -> None:
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, before)

        def rest() -> None:
            """Ctrl-Z: give the terminal back to the shell, and take it again when the shell says so."""
            leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            enter()
            changed()

        enter()
        try:
            loop.add_reader(self._in, read)
            loop.add_signal_handler(signal.SIGWINCH, changed)
            loop.add_signal_handler(signal.SIGTSTP, rest)
            yield
        finally:
            loop.remove_reader(self._in)
            for number in (signal.SIGWINCH, signal.SIGTSTP):
                loop.remove_signal_handler(number)
            with suppress(OSError, termios.error):  # the terminal itself may be gone
                leave()

    def draw(self, lines: list[Line]) -> None:
        """Show these lines, the first as the title; only those that have changed are written."""
        columns, rows = self.size
        made = [painted(line, columns, colours=self._colours, bar=not at) for at, line in enumerate(lines[:rows])]
        known = self._drawn if len(self._drawn) == len(made) else [""] * len(made)
        told = [
            f"\x1b[{at};1H{line}\x1b[K"
            for at, (line, old) in enumerate(zip(made, known, strict=True), 1)
            if line != old
        ]
        if known is not self._drawn:
            told.insert(0, "\x1b[2J")
        self._drawn = made
        if told:
            self._write("".join(told))

    def forget(self) -> None:
        """Draw all of it next time."""
        self._drawn = []

    def _write(self, text: str) -> None:
        raw = text.encode()
        while raw:
            raw = raw[os.write(self._out, raw) :]
