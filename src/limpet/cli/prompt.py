"""Asks a person at the terminal for one line at a time, while the connection to the store stays served."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Final

_MOST: Final = 65_536  # bytes of a line; a terminal gives 4,095


def at_terminal() -> bool:
    """True when a person reads and types here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


async def ask(question: str) -> str | None:
    """The line that a person types; None for the end of the input (Ctrl-D).

    Ctrl-C cancels the command as everywhere: a thread that reads would keep it from ending.
    """
    sys.stdout.write(question)
    sys.stdout.flush()
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    typed = asyncio.Event()
    loop.add_reader(number, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(number)
    try:
        raw = os.read(number, _MOST)  # the terminal gives whole lines, one at a time
    except OSError:  # the terminal is gone
        raw = b""
    if not raw:
        print()
        return None
    return raw.decode(errors="replace").strip()


async def agreed(question: str) -> bool:
    """Whether the person says yes; everything else is a no."""
    answer = await ask(f"{question} [y/N]: ")
    return answer is not None and answer.lower() in ("y", "yes")
