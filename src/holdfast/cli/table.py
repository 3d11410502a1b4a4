"""Decides how a list looks: coloured and fitted on a terminal, plain aligned columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from holdfast.cli.terminal import clean

WIDEST: Final = 60  # a cell of a plain table; whole texts are in --json
NARROWEST: Final = 16  # free text is cut to this on a narrow screen, not below
BETWEEN: Final = 3  # what the table puts between two columns
FREE: Final = frozenset({"error", "message", "why", "gate", "tasks", "queues"})
STYLES: Final = {
    "ready": "cyan",
    "running": "blue",
    "scheduled": "magenta",
    "blocked": "yellow",
    "succeeded": "green",
    "dead": "bold red",
    "cancelled": "dim",
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
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = _fitted(columns, rows, console.width)
    # Where even that is too wide, lines go on below: a column that is left out without a word would be worse.
    console.width = max(console.width, sum(widths) + BETWEEN * len(widths))
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console.print(table)


def _fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column. Only free text gives way on a narrow screen: an id that is cut cannot be copied."""
    widths = [max(len(column), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]
    free = sorted((i for i, column in enumerate(columns) if column in FREE), key=lambda i: widths[i])
    left = room - BETWEEN * len(columns) - sum(width for i, width in enumerate(widths) if i not in free)
    for nth, i in enumerate(free):  # the shortest first: what it does not need goes to the others
        share = left // (len(free) - nth)
        widths[i] = min(widths[i], max(share, len(columns[i]), NARROWEST))
        left -= widths[i]
    return widths
