"""What each statement of each function did: read from a server's log, or heard over one connection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg

# What own() takes so that a server tells: every statement, those inside functions too, with what it did.
TELLING: Final[Mapping[str, str | int]] = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": 0,
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "autovacuum": "off",
    "fsync": "off",
}

# The same for one connection, which is told itself.
SAYING: Final = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_analyze = on;
SET auto_explain.log_timing = off;
SET auto_explain.log_format = json;
SET auto_explain.log_level = notice
"""

_PLAN: Final = re.compile(r"duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)")


def overheard(line: psycopg.Connection[Any]) -> list[tuple[str, dict[str, Any]]]:
    """(statement, plan) of everything that is run over this connection from now on, as it happens."""
    heard: list[tuple[str, dict[str, Any]]] = []

    def hear(said: psycopg.errors.Diagnostic) -> None:
        head, _, told = (said.message_primary or "").partition("\n")
        if head.endswith("plan:"):
            plan = json.loads(told)
            heard.append((" ".join(plan["Query Text"].split()), plan["Plan"]))

    line.execute(SAYING)
    line.add_notice_handler(hear)
    return heard


def plans(log: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(statement, plan) of everything that was run."""
    for found in _PLAN.finditer(log):
        told = json.loads("\n".join(line[1:] for line in found[1].splitlines()))
        yield " ".join(told["Query Text"].split()), told["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A plan's parts, from the top down."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def touched(log: str) -> Iterator[tuple[int, str, str]]:
    """(rows, table and index, statement) of every scan of a table: rows it answered and rows it looked at in vain."""
    for statement, plan in plans(log):
        for node in nodes(plan):
            if "Relation Name" in node and "Scan" in node["Node Type"]:
                vain = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
                rows = (node["Actual Rows"] + vain) * node["Actual Loops"]
                yield rows, f"{node['Node Type']} {node.get('Index Name', node['Relation Name'])}", statement
