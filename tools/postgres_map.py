"""Writes the map of PostgreSQL's tables into docs/reference/postgres-tables.md, from the comments in sql/tables.

`python tools/postgres_map.py` writes the page; with --check it only says whether the page is up to date. A table or a
column without a comment is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from limpet.stores.postgres.layout import FOLDER
from limpet.stores.postgres.names import NAMES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "postgres-tables.md"
BEGIN, END = "<!-- written by tools/postgres_map.py: begin -->", "<!-- written by tools/postgres_map.py: end -->"

HEAD = "| column | type | holds |\n|---|---|---|"
_SECTION = re.compile(r"-- == (?P<section>.*)")
_TABLE = re.compile(r"CREATE TABLE lp\.(?P<table>\w+) \(")
_LIKE = re.compile(r"  LIKE lp\.(?P<like>\w+) INCLUDING DEFAULTS,")
_COLUMN = re.compile(r"  (?P<column>\w+) (?P<rest>.*?),?(?: -- (?P<holds>.*))?")
_TYPE = re.compile(r"double precision|\w+(?:\[\])?")
_INDEX = re.compile(
    r"CREATE (?P<what>INDEX|SEQUENCE) (?:lp\.)?(?P<name>\w+)(?: ON lp\.(?P<on>\w+) (?P<columns>.*))?;.*"
)
_NAME = re.compile(r"(?<![:\w]):([A-Z][A-Z0-9_]*)\b")


class Table(NamedTuple):
    """A table of the schema, as its comments describe it."""

    name: str
    holds: str
    columns: list[str]
    indexes: list[str]


def tables() -> Iterator[str | Table]:
    """The headings and the tables of all migrations, in order."""
    for file in sorted((FOLDER / "tables").glob("*.sql")):
        yield from _tables(file.name, file.read_text().splitlines())


def _tables(file: str, lines: list[str]) -> Iterator[str | Table]:
    found: dict[str, Table] = {}
    above: list[str] = []  # the comment that ends just before a line
    table: Table | None = None
    for number, line in enumerate(lines, 1):
        if section := _SECTION.fullmatch(line):
            yield section["section"]
        elif table is not None:
            if line.startswith(")"):
                table = None
            elif (text := _column(line)) is None:
                sys.exit(f"{file}:{number}: a column of {table.name} has no comment that says what it holds")
            elif text:
                table.columns.append(text)
        elif made := _TABLE.match(line):
            if not above:
                sys.exit(f"{file}:{number}: no comment above {made['table']} says what the table holds")
            table = found[made["table"]] = Table(made["table"], _named(" ".join(above)), [], [])
            yield table
        elif (index := _INDEX.fullmatch(line)) and index["on"]:
            columns = _NAME.sub(r"\1", index["columns"])
            found[index["on"]].indexes.append(f"`{index['name']}` {columns}")
        above = [*above, line[3:]] if line.startswith("-- ") else []


def _column(line: str) -> str | None:
    """A row of the page; '' for a line that makes no column, None for a column without a comment."""
    if like := _LIKE.fullmatch(line):
        return f"| … | | the columns of `{like['like']}` |"
    found = _COLUMN.fullmatch(line)
    assert found is not None, line
    if found["column"].isupper():  # a constraint
        return ""
    if found["holds"] is None:
        return None
    kind = _TYPE.match(found["rest"])
    assert kind is not None, line
    return f"| {found['column']} | {kind[0]} | {_named(found['holds'])} |"


def _named(text: str) -> str:
    """The text with each name of a number written as name and number."""
    return _NAME.sub(lambda found: f"{found[1]} = {NAMES[found[1]]}", text).replace("|", "\\|")


def part() -> str:
    """What stands between the marks."""
    parts = []
    for each in list(tables()):  # the last line of a table comes after its first
        if isinstance(each, str):
            parts.append(f"## {each}")
            continue
        rows = "\n".join([HEAD, *each.columns])
        indexes = f"Indexes: {'; '.join(each.indexes)}." if each.indexes else ""
        parts += [f"### {each.name}", each.holds, rows, *([indexes] if indexes else [])]
    return "\n\n".join(parts)


def main() -> None:
    """Write the page, or with --check exit 1 when it is out of date."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{PAGE} has lost its marks: {BEGIN} … {END}")
    fresh = f"{before}{BEGIN}\n\n{part()}\n\n{END}{after}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh)
    elif fresh != PAGE.read_text():
        sys.exit(f"{PAGE.name} is out of date: run python tools/postgres_map.py")


if __name__ == "__main__":
    main()
