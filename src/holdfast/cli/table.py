"""Decides how a list looks: coloured and fitted on a terminal, plain aligned columns in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from holdfast.cli.terminal import clean

WIDEST: Final = 60  # a cell of a plain table; whole texts are in --json
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

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        # Only free text gives way on a narrow screen: an id that is cut cannot be copied.
        least = None if column in FREE else max(len(column), *(len(row[i]) for row in rows))
        table.add_column(column, overflow="ellipsis", no_wrap=True, min_width=least)
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console().print(table)
