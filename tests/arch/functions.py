"""Measures the functions of Lua and SQL files: no linter reads those, and a long function hides there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LUA_TEXT: Final = re.compile(r"""--\[\[.*?\]\]|--[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_LUA_WORD: Final = re.compile(r"\b(function|if|do|repeat|end|until)\b")
_LUA_NAME: Final = re.compile(r"\s*(?:local )?(?:function ([\w.:]+)|([\w.\[\]]+) = function)")
_SQL_TEXT: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_SQL_BEGIN: Final = re.compile(r"^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) ([\w.]+)", re.MULTILINE | re.IGNORECASE)
_SQL_QUOTE: Final = re.compile(r"\$\w*\$")


class Function(NamedTuple):
    """One function and the lines of code in it; blank lines and comments do not count."""

    name: str
    line: int
    length: int


def lua_functions(text: str) -> Iterator[Function]:
    """Every function of a Lua file, inner ones too; and the statements that stand in none, as "(top)"."""
    text = _LUA_TEXT.sub(_blank, text)
    blocks: list[tuple[str, int]] = []  # the name of a function, or "", and the line where the block begins
    inside: set[int] = set()
    for word in _LUA_WORD.finditer(text):
        line = text.count("\n", 0, word.start()) + 1
        if word[1] not in ("end", "until"):
            blocks.append((_lua_name(text, word) if word[1] == "function" else "", line))
            continue
        name, begin = blocks.pop()
        if name:
            yield Function(name, begin, _code(text, begin, line))
            inside |= set(range(begin, line + 1))
    assert not blocks, f"a block without an end: {blocks}"
    outside = [code for number, code in enumerate(text.split("\n"), 1) if number not in inside]
    yield Function("(top)", 1, sum(1 for code in outside if code.strip()))


def _lua_name(text: str, word: re.Match[str]) -> str:
    found = _LUA_NAME.match(text, text.rfind("\n", 0, word.start()) + 1)
    return (found[1] or found[2]) if found else f"(line {text.count(chr(10), 0, word.start()) + 1})"


def sql_functions(text: str) -> Iterator[Function]:
    """Every function and procedure that a SQL file makes, from its name to the end of its body."""
    text = _SQL_TEXT.sub(_blank, text)
    for begin in _SQL_BEGIN.finditer(text):
        quote = _SQL_QUOTE.search(text, begin.end())
        assert quote is not None, f"{begin[1]} has no quoted body"
        end = text.index(quote[0], quote.end())
        first = text.count("\n", 0, begin.start()) + 1
        yield Function(begin[1], first, _code(text, first, text.count("\n", 0, end) + 1))


def functions_of(path: Path) -> list[Function]:
    """Those of a file."""
    measure = lua_functions if path.suffix == ".lua" else sql_functions
    return list(measure(path.read_text()))


def _code(text: str, first: int, last: int) -> int:
    return sum(1 for line in text.split("\n")[first - 1 : last] if line.strip())


def _blank(found: re.Match[str]) -> str:
    """Nothing in place of a comment, and a short text in place of a long one; line breaks stay."""
    return ("" if found[0].startswith(("--", "/*")) else "''") + "\n" * found[0].count("\n")
