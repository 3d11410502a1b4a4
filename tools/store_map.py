"""Writes the maps of what engines store into docs/reference, from the tables that the engines themselves use.

`python tools/store_map.py` writes the pages; with --check it only says whether they are up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

from limpet.stores.redis import fields, keys

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"
BEGIN, END = "<!-- written by tools/store_map.py: begin -->", "<!-- written by tools/store_map.py: end -->"

HEAD = "| name | key | type | holds | an entry is removed by or when |\n|---|---|---|---|---|"


def redis() -> str:
    """The keys of a namespace, and the layouts of what they hold."""
    return "\n\n".join([*_keys(), "## Layouts", *_layouts()])


def _keys() -> list[str]:
    """One table for each part of the source."""
    parts: list[str] = []
    for line in inspect.getsource(keys.K).splitlines():
        if heading := re.fullmatch(r"    # -- (.*)", line):
            parts.append(f"## {heading[1]}\n\n{HEAD}")
        elif name := re.match(r"    (\w+) = Key\(", line):
            parts[-1] += "\n" + _key(name[1], keys.KEYS[name[1]])
    return parts


def _key(name: str, key: keys.Key) -> str:
    stored = f"`{key.stored}`" + (f" {key.per}" if key.per else "")
    return f"| {name} | {stored} | {key.type} | {key.holds} | {key.removed} |"


def _layouts() -> list[str]:
    """What the names in capitals stand for."""
    rows, arrays = [], []
    for name, layout in fields.LAYOUTS.items():
        if isinstance(layout, fields.Bytes):
            places = ", ".join(f"{field} {_bytes(layout, field)}" for field in layout.fields)
            rows.append(f"| {name} | {places} |")
        elif isinstance(layout, fields.Row):
            arrays.append(f"| {name} | {', '.join(layout.names)} |")
        else:
            arrays.append(f"| {name} | {', '.join(f'{short} = {long}' for long, short in layout.names.items())} |")
    return [
        "Bytes, counted from 1; numbers are written with the highest byte first:",
        "\n".join(["| layout | fields |", "|---|---|", *rows]),
        "Msgpack arrays, and the map that scripts add to a record:",
        "\n".join(["| layout | fields |", "|---|---|", *arrays]),
    ]


def _bytes(layout: fields.Bytes, field: str) -> str:
    begin, end = layout.span(field)
    if end is None:
        return f"({begin + 1} to the end)"
    return f"({begin + 1})" if end == begin + 1 else f"({begin + 1}-{end})"


PAGES: dict[str, Callable[[], str]] = {"redis-keys.md": redis}


def written(page: Path, part: str) -> str:
    """The page with the part between the two marks written again."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{page} has lost its marks: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def main() -> None:
    """Write the pages, or with --check exit 1 when one is out of date."""
    for name, part in PAGES.items():
        page = DOCS / name
        fresh = written(page, part())
        if "--check" not in sys.argv[1:]:
            page.write_text(fresh)
        elif fresh != page.read_text():
            sys.exit(f"{name} is out of date: run python tools/store_map.py")


if __name__ == "__main__":
    main()
