"""Decides how a line of the screen is made: pieces of text with a style, cut to a width, with colours or without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final, Literal, NamedTuple

from rich.cells import cell_len, set_cell_size

from limpet.cli.terminal import clean

Style = Literal["", "dim", "bold", "head", "bar", "key", "good", "warn", "bad", "cold", "blue"]

# Of the sixteen colours that every terminal has, so that its theme decides how they look.
_CODES: Final[dict[Style, str]] = {
    "dim": "2",
    "bold": "1",
    "head": "1;36",
    "bar": "7",
    "key": "1",
    "good": "32",
    "warn": "33",
    "bad": "1;31",
    "cold": "36",
    "blue": "34",
}
_MONO: Final[dict[Style, str]] = {"head": "1", "bold": "1", "key": "1", "bar": "7", "dim": "2", "bad": "1"}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


class Piece(NamedTuple):
    """Some text of one style."""

    text: str
    style: Style = ""


Line = Sequence[Piece]


class Column(NamedTuple):
    """How wide a column is, with the gap before it; 0: it shares what is left. Numbers stand to the right."""

    name: str
    width: int = 0
    right: bool = True


def pieces(*parts: str | Piece) -> list[Piece]:
    """A line of plain and styled parts."""
    return [part if isinstance(part, Piece) else Piece(part) for part in parts]


def fitted(text: str, width: int) -> str:
    """Text of exactly this width; what does not fit is cut, and says so."""
    text = clean(text)
    if width <= 0:
        return ""
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def cells(columns: Sequence[Column], values: Sequence[str | Piece], width: int) -> list[Piece]:
    """A row of a table, as wide as the screen."""
    flexible = [column for column in columns if not column.width]
    left = max(0, width - sum(column.width for column in columns))
    share, rest = divmod(left, max(1, len(flexible)))
    made: list[Piece] = []
    for column, value in zip(columns, pieces(*values), strict=True):
        room = column.width
        if not room:
            room, rest = share + (1 if rest else 0), max(0, rest - 1)
        text = clean(value.text)
        if column.right:
            text = fitted(text, room - 1).rstrip() if cell_len(text) >= room else text
            made.append(Piece(" " * (room - cell_len(text)) + text, value.style))
        else:
            made.append(Piece(" " * bool(made) + fitted(text, room - bool(made)), value.style))
    return made


def painted(line: Line, width: int, *, colours: bool, bar: bool = False) -> str:
    """The line as a terminal is told to write it, never wider than the screen."""
    codes, made, room = _CODES if colours else _MONO, list[str](), width
    for piece in line:
        text = clean(piece.text)
        text = text if cell_len(text) <= room else set_cell_size(text, room)
        room -= cell_len(text)
        code = "7" if bar else codes.get(piece.style, "")
        made.append(f"\x1b[{code}m{text}\x1b[0m" if code and text else text)
    if bar and room > 0:
        made.append(f"\x1b[7m{' ' * room}\x1b[0m")
    return "".join(made)


def plain(line: Line) -> str:
    """The same without any style."""
    return "".join(clean(piece.text) for piece in line).rstrip()


def wrapped(line: str, width: int) -> list[str]:
    """A line of a page in as many as it takes; those that follow stand under it."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return wrap(line, width, subsequent_indent=indent, drop_whitespace=True) or [""]


def sparkline(values: Iterable[float], width: int) -> str:
    """The newest values as blocks, the largest as high as a line."""
    shown = list(values)[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    if not most:
        return _BLOCKS[0] * len(shown)
    return "".join(_BLOCKS[min(7, int(value / most * 7.999))] for value in shown)
