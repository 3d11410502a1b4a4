"""Decides how a list looks: coloured and fitted on a terminal, plain aligned columns in a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from limpet.cli.terminal import clean
from limpet.core.jobs.state import STATES

if TYPE_CHECKING:
    from rich.console import Console

ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

WIDEST: Final = 60  # a cell of a plain table; whole texts are in --json
BETWEEN: Final = 2  # what stands between two columns
FREE: Final = frozenset({"error", "message", "why", "note", "tasks", "queues", "when", "next", "options"})
IDS: Final = frozenset({"id", "sample", "on"})
COUNTS: Final = frozenset({*(state.value for state in STATES), "waiting", "workers", "done/min", "failed"})
NAMES: Final = frozenset(
    {"task", "queue", "worker", "who", "what", "at", "cause", "capabilities", "limit", "breaker", "schedule", "code"}
)
# What gives way on a narrow screen, in this order, and the width that it keeps. The end of an id still names its job;
# of counts only the heading is cut, never a number.
GIVE_WAY: Final = ((FREE, 24), (IDS, 13), (COUNTS, 5), (FREE, 12), (NAMES, 12), (FREE | NAMES, 8))
STYLES: Final = {
    "ready": "cyan",
    "running": "blue",
    "scheduled": "magenta",
    "blocked": "yellow",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
    "on": "green",
    "paused": "yellow",
    "absent": "bold red",
    "unreadable": "bold red",
    "open": "bold red",
    "half-open": "yellow",
    "closed": "green",
    "error": "bold red",
    "warning": "yellow",
    "ok": "green",
}


def show(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on stdout."""
    cells = [["" if cell is None else clean(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich(columns, cells)
    else:
        _plain(columns, cells)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    cut = [[cell if len(cell) <= WIDEST else cell[: WIDEST - 1] + "…" for cell in row] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cut)) for i, column in enumerate(columns)]
    for row in ([column.upper() for column in columns], *cut):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = fitted(columns, rows, console.width)
    if widths is None:
        _stacked(console, columns, rows)
        return
    table = Table(box=None, pad_edge=False, padding=(0, BETWEEN, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        cells = (_short(cell, width) for cell, width in zip(row, widths, strict=True))
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    console.print(table)


def _stacked(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line for each cell, where no table fits: a column that is left out without a word would be worse."""
    from rich.text import Text

    widest = max(len(column) for column in columns)
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            line = Text.assemble((column.ljust(widest), "bold"), "  ", (cell, STYLES.get(cell, "")))
            console.print(line, soft_wrap=True)
        console.print()


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """The width of each column, so that all of them fit; None when the screen is too narrow for that."""
    from rich.cells import cell_len

    cells = [max(cell_len(row[i]) for row in rows) for i in range(len(columns))]
    wanted = [max(len(column), cell) for column, cell in zip(columns, cells, strict=True)]
    widths, room = list(wanted), room - BETWEEN * (len(columns) - 1)
    for names, least in GIVE_WAY:
        floors = {i: max(least, cells[i] * (names is COUNTS)) for i, name in enumerate(columns) if name in names}
        while sum(widths) > room and (able := [i for i, floor in floors.items() if widths[i] > floor]):
            widest = max(able, key=widths.__getitem__)
            # Half an id is of no more use than its end; of anything else every letter counts.
            widths[widest] = floors[widest] if names is IDS else widths[widest] - 1
    for i, column in enumerate(columns):  # what an id has left over
        if column in FREE and sum(widths) < room:
            widths[i] = min(wanted[i], widths[i] + room - sum(widths))
    return widths if sum(widths) <= room else None


def _short(cell: str, width: int) -> str:
    """An id is cut from the front: commands take the end of one. All else is cut at its end, by the table."""
    return cell if len(cell) <= width or not ID.fullmatch(cell) else f"…{cell[1 - width :]}"
