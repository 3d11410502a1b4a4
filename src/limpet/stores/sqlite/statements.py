"""Loads the SQL files of this folder: each holds named statements, written for the prefix `limpet_`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def sources() -> dict[str, str]:
    """File stem → text, for every SQL file of the engine."""
    folder = files("limpet.stores.sqlite") / "sql"
    return {
        entry.name.removesuffix(".sql"): entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".sql")
    }


@cache
def statements(prefix: str) -> dict[str, str]:
    """Statement name → SQL, with the namespace's prefix in place."""
    found: dict[str, str] = {}
    for text in sources().values():
        parts = _NAME.split(text)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise RuntimeError(f"statement {name} is defined twice")
            lines = [line for line in body.splitlines() if not line.startswith("--")]
            found[name] = with_prefix("\n".join(lines).strip().rstrip(";"), prefix)
    return found


def with_prefix(sql: str, prefix: str) -> str:
    """The same SQL for a namespace's own tables."""
    return sql if prefix == "limpet_" else re.sub(r"\blimpet_", prefix, sql)


@cache
def with_marks(sql: str, place: str, mark: str, count: int) -> str:
    """The same SQL with `count` marks for values in place of `:keys` or `:rows`."""
    return sql.replace(place, ",".join([mark] * count))


def prefix_of(namespace: str) -> str:
    """Namespaces are sets of tables: nothing of one can be seen from another. SQLite ignores case in names."""
    if namespace == "default":
        return "limpet_"
    plain = "".join(c if c.isascii() and (c.isdigit() or c.islower()) else f"_{ord(c):x}_" for c in namespace)
    return f"limpet_{plain}__"
