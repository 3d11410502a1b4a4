"""Functions in SQL stay as short as functions in Python: what no linter looks at is counted here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from limpet.stores.postgres.layout import FOLDER
from tests.arch.tree import named, written_files

LONGEST = 60
LONG = 40
MANY = 25  # so many functions may be longer than LONG
# Settlement is being rewritten: core decides what a transition does, and these functions become shorter with that.
EXCEPTIONS = re.compile(r"7[0-5]_\w+\.sql")


class Function(NamedTuple):
    """A function of a file, from its CREATE to its end."""

    file: Path
    name: str
    lines: int


def functions() -> list[Function]:
    """All functions of the engine."""
    found = []
    for file in written_files(FOLDER / "verbs"):
        name, start = "", 0
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if made := re.match(r"CREATE OR REPLACE FUNCTION lp\.(\w+)", line):
                name, start = made.group(1), number
            elif name and re.fullmatch(r"(END )?\$\$;", line):
                found.append(Function(file, name, number - start + 1))
                name = ""
        assert not name, f"{named(file)}: the end of {name} was not found"
    return found


def test_every_function_is_counted() -> None:
    texts = "\n".join(file.read_text() for file in written_files(FOLDER / "verbs"))
    assert len(functions()) == texts.count("CREATE OR REPLACE FUNCTION") > 300


def test_no_function_is_longer_than_one_can_read() -> None:
    long = [f for f in functions() if f.lines > LONGEST and not EXCEPTIONS.fullmatch(f.file.name)]
    assert [f"{named(f.file)}: {f.name} has {f.lines} lines, more than {LONGEST}" for f in long] == []


def test_few_functions_are_long() -> None:
    long = sorted((f for f in functions() if f.lines > LONG), key=lambda f: -f.lines)
    assert len(long) <= MANY, [f"{f.name} {f.lines}" for f in long]
