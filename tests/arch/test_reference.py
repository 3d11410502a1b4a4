"""Reference pages list exactly what the code has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import limpet
from limpet.core import errors
from limpet.ops.codes import MEANINGS
from tests.arch.tree import PACKAGE, ROOT, modules


def test_the_page_of_errors_lists_every_error_with_its_code() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| `(\w+)`", page, re.MULTILINE))
    raised = {
        (name, kind.code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.LimpetError)
    }
    assert listed == raised - {("LimpetError", "limpet")}


def test_every_error_is_importable_and_raised_somewhere() -> None:
    code = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.LimpetError):
            assert getattr(limpet, name) is kind
            family = [other.__name__ for other in vars(errors).values() if isinstance(other, type)]
            parents = {base for base in family if f"({base}" in code}
            assert name in parents or re.search(rf"\b{name}\(", code), name


def test_the_page_of_errors_says_which_are_retryable() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = dict(re.findall(r"^\| `(Store\w+|SchemaOutdated)` \| `\w+` \| (yes|no)", page, re.MULTILINE))
    raised = {
        name: "yes" if kind.retryable else "no"
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.StoreError)
    }
    assert listed == raised


def test_the_page_of_errors_shows_the_table_of_exit_codes_and_http_statuses() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    shown = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (.+) \|$", page, re.MULTILINE)
    assert shown == [(code, str(m.exit), str(m.status), m.title) for code, m in MEANINGS.items()]


def test_every_error_of_the_package_is_in_the_table_and_nothing_else() -> None:
    declared = set[str]()
    for path in modules():
        if path.is_relative_to(PACKAGE):
            classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
            declared |= {code for each in classes for code in codes_of(each)}
    assert declared == MEANINGS.keys()


def codes_of(node: ast.ClassDef) -> Iterator[str]:
    """The code that a class says errors of it have."""
    for line in node.body:
        match line:
            case ast.Assign([ast.Name("code")], ast.Constant(str(code))):
                yield code
            case ast.AnnAssign(ast.Name("code"), _, ast.Constant(str(code))):
                yield code
