"""Words of the inside (lane, gate, settle) stay inside: no message, command or page for users has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.arch.tree import PACKAGE, ROOT, modules, named

DOCS: Final = ROOT / "docs"
INSIDE: Final = re.compile(r"\b(lanes?|laneless|gates?|gated|settle[drs]?|settling|settlements?)\b", re.IGNORECASE)
SENTENCE: Final = re.compile(r"\S\s+\S")
STATEMENT: Final = re.compile(r"\b(SELECT|JOIN|FROM|WHERE|coalesce)\b")  # what is sent to a database is not for people

MAPS: Final = ("src/limpet/stores/redis/keys.py",)  # descriptions of what is stored, for a page of builders
# Pages for those who change Limpet or measure it, not for those who use it.
FOR_BUILDERS: Final = (
    "adr/",
    "evidence/",
    "architecture.md",
    "glossary.md",
    "how-to/add-an-engine.md",
    "how-to/change-limpet.md",
    "reference/postgres-tables.md",
    "reference/redis-keys.md",
)
NAMED: Final = re.compile(r"`[^`\n]+`|\]\([^)]*\)")  # paths, tests and classes are called what they are called


def said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The sentences in code that people may read: not its docstrings, but those that are the help of a command."""
    docs: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            is_help = getattr(node, "name", "").endswith("_body")
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and not is_help:
                docs.add(id(first.value))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docs:
            continue
        if SENTENCE.search(node.value) and not STATEMENT.search(node.value):
            yield node.lineno, node.value


def test_no_message_has_a_word_of_the_inside() -> None:
    found = [
        f"{named(path)}:{line}: {text}"
        for path in modules()
        if path.is_relative_to(PACKAGE) and named(path) not in MAPS
        for line, text in said(ast.parse(path.read_text()))
        if INSIDE.search(text)
    ]
    assert found == []


def pages() -> Iterator[Path]:
    yield ROOT / "README.md"
    yield from (path for path in sorted(DOCS.rglob("*.md")) if not str(path.relative_to(DOCS)).startswith(FOR_BUILDERS))


@pytest.mark.parametrize("page", list(pages()), ids=named)
def test_no_page_for_users_has_a_word_of_the_inside(page: Path) -> None:
    lines = NAMED.sub("", page.read_text()).splitlines()
    assert [f"{page.name}:{number}: {line}" for number, line in enumerate(lines, 1) if INSIDE.search(line)] == []
