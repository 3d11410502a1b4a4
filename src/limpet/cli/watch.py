"""Shows a list again and again (--watch): redrawn on a terminal; elsewhere a new block, or a line of JSON, per look."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from typing import Any, Final

import click

from limpet.cli.terminal import Terminal, clean
from limpet.core.errors import InvalidOption, LimpetError, StoreError
from limpet.core.text.duration import text_of_ms, to_ms

EVERY: Final = "2s"
LEAST_MS: Final = 100
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN, _END = "\x1b[?25l\x1b[H", "\x1b[?25h"  # home, without the cursor; with it again
_END_OF_LINE, _BELOW = "\x1b[K\n", "\x1b[J"  # what was there before goes

Look = Callable[[], Awaitable[int | None]]


def watch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every list."""
    made: Callable[..., Any] = function
    words = f"Look again and again until Ctrl-C, every so often ({EVERY})."
    made = click.option("--looks", type=click.IntRange(1), metavar="N", help="With --watch: end after N looks.")(made)
    return click.option("--watch", "every_ms", type=_interval, metavar="[TIME]", help=words)(made)


def with_interval(args: Sequence[str], option: str = "--watch", alone: str = EVERY) -> list[str]:
    """`--watch` may stand alone, also before a query: then what follows is not how often."""
    following = [*args[1:], ""]
    return [
        f"{word}={alone}" if word == option and not _is_duration(after) else word
        for word, after in zip(args, following, strict=True)
    ]


async def watched(terminal: Terminal, look: Look, every_ms: int, looks: int | None) -> int:
    """Look until Ctrl-C, which is a good end (0), or `looks` times: then with the exit code of the last one.

    A store that goes away after the first look is asked again; its trouble is shown meanwhile.
    """
    drawn = sys.stdout.isatty() and not terminal.machine
    show = _drawn if drawn else _appended
    number = 0
    try:
        while True:
            number += 1
            code = await show(terminal, _enduring(terminal, look, first=number == 1), every_ms)
            if number == looks:
                return code or 0
            await asyncio.sleep(every_ms / 1000)
    except asyncio.CancelledError:
        return 0
    finally:
        if drawn:
            sys.stdout.write(_END)
        await terminal.let_go()


def _enduring(terminal: Terminal, look: Look, *, first: bool) -> Look:
    async def enduring() -> int | None:
        try:
            return await look()
        except StoreError as error:
            if first or not error.retryable:
                raise
            await terminal.let_go()
            terminal.say(f"the store is away: {error.message}", keep=True)
            return None

    return enduring


async def _appended(terminal: Terminal, look: Look, every_ms: int) -> int | None:
    """One look below the others."""
    if not terminal.machine:
        terminal.text(f"{datetime.now().astimezone().isoformat(timespec='seconds')}")
    code = await look()
    if not terminal.machine:
        terminal.text("")
    sys.stdout.flush()
    return code


async def _drawn(terminal: Terminal, look: Look, every_ms: int) -> int | None:
    """One look in the place of the last one, messages included."""
    page = _Page()
    with redirect_stdout(page), redirect_stderr(page):
        code = await look()
    size = os.get_terminal_size(sys.stdout.fileno())
    title = _title(every_ms, size.columns)
    body = page.getvalue().rstrip("\n").split("\n")
    rows = fitted(body, size.columns, size.lines - 3, head=terminal.headed, newest_last=terminal.newest_last)
    sys.stdout.write(_BEGIN + "".join(line + _END_OF_LINE for line in (title, "", *rows)) + _BELOW)
    sys.stdout.flush()
    return code


class _Page(io.StringIO):
    """Takes what a look prints; tables are drawn for the terminal behind it."""

    def isatty(self) -> bool:
        return True


def fitted(lines: Sequence[str], columns: int, rows: int, *, head: bool, newest_last: bool) -> list[str]:
    """The lines that fit; the first one stays if it is the head of a table, and what is left out is counted."""
    if sum(_rows(line, columns) for line in lines) <= rows:
        return [*lines]
    top = [*lines[:1]] if head else []
    rest = [*lines[len(top) :]]
    room = rows - sum(_rows(line, columns) for line in top) - 1
    kept: list[str] = []
    for line in reversed(rest) if newest_last else rest:
        room -= _rows(line, columns)
        if room < 0:
            break
        kept.append(line)
    note = f"… {len(rest) - len(kept):,} lines more"
    return [*top, note, *reversed(kept)] if newest_last else [*top, *kept, note]


def _rows(line: str, columns: int) -> int:
    """How many rows of the screen a line takes."""
    from rich.cells import cell_len

    return max(1, -(-cell_len(_ANSI.sub("", line)) // columns))


def _title(every_ms: int, columns: int) -> str:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    words = clean(f"every {text_of_ms(every_ms)}: limpet {shlex.join(sys.argv[1:])}")
    room = columns - len(now) - 2
    return f"{words if len(words) <= room else words[: room - 1] + '…':<{room}}  {now}"


def _is_duration(word: str) -> bool:
    try:
        to_ms(word, what="--watch")
    except LimpetError:
        return False
    return True


def _interval(text: str) -> int:
    every_ms = to_ms(text, what="--watch")
    if every_ms < LEAST_MS:
        raise InvalidOption(f"--watch {text} is too often", fix=f"at least {text_of_ms(LEAST_MS)}")
    return every_ms
