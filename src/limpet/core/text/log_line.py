"""Decides how a line of the log is written as text: values in quotes, and nothing that could pass for another line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from limpet.core.text.storable import spoken

BLOCKS: Final = ("traceback", "stack")  # fields of several lines: they follow the line
INDENT: Final = "\n  "  # before what continues a line: only the first line of a record begins with a time
# A line within the PIPE_BUF of Linux (4,096 bytes) is written in one piece. So much of it, as JSON, for a block:
TRACEBACK_BYTES: Final = 2_800
LINE_CHARS: Final = 500  # of a block, and of an error in its own field

_BARE: Final = re.compile(r"[A-Za-z0-9_.,:;/@+*()<>\[\]{}|~!?&%#$^-]+")
# What moves the cursor, ends a line somewhere, or turns the direction of the text.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Said:
    """The fields of an event as words, for formatters that know nothing of them; made when one asks."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        blocks = "".join(f"\n{self._fields[name]}" for name in BLOCKS if name in self._fields)
        return words({name: value for name, value in self._fields.items() if name not in BLOCKS}) + blocks


def words(fields: Mapping[str, object]) -> str:
    """The fields of an event: name=value, each after a space.

    >>> words({"attempt": 2, "error": "OSError: no route", "proven": False})
    ' attempt=2 error="OSError: no route" proven=false'
    """
    return "".join(f" {name}={value_text(value)}" for name, value in fields.items())


def value_text(value: object) -> str:
    """A value as it stands in a line: numbers and plain words bare, any other text in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | tuple):
        return quoted(",".join(spoken(each) for each in value))
    return quoted(spoken(value))


def quoted(text: str) -> str:
    """Text in quotes, in one line, unless it is a plain word.

    >>> quoted('he said "no"\\nand left')
    '"he said \\\\"no\\\\"\\\\nand left"'
    """
    if _BARE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{visible(escaped)}"'


def visible(text: str) -> str:
    """Text with its control characters written out, but for the ends of its lines and tabs."""
    return text if text.isprintable() else _UNSEEN.sub(_written_out, text)


def indented(text: str) -> str:
    """Text of several lines as it stands in the log: no line of it but the first begins at the margin."""
    return visible(text.rstrip("\n")).replace("\n", INDENT)


def last_lines(traceback: str) -> str:
    """The end of a traceback, where the error is, as far as it fits into a line that is written in one piece."""
    kept: list[str] = []
    left = TRACEBACK_BYTES
    for line in reversed(traceback.rstrip("\n").split("\n")):
        short = line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"
        left -= len(short.encode(errors="replace")) + short.count('"') + short.count("\\") + 2
        if left < 0:
            return "\n".join(["(cut)", *reversed(kept)])
        kept.append(short)
    return "\n".join(reversed(kept))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
