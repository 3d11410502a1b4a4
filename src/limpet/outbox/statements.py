"""Loads the SQL files of this folder: one per kind of database, each with the same statements by name."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from limpet.stores.callers import Dialect

_NAME: Final = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Statement name → SQL, with numbered marks for its values."""
    parts = _NAME.split((files("limpet.outbox") / "sql" / f"{dialect}.sql").read_text("utf-8"))
    return {name: _plain(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def schema(dialect: Dialect) -> str:
    """What makes the tables, for the reader's own migrations; each statement leaves alone what is there."""
    return statements(dialect)["create"] + ";\n"


def _plain(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";")
