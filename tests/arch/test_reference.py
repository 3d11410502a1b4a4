"""Reference pages list exactly what the code has."""

from __future__ import annotations

import re

import limpet
from limpet.core import errors
from tests.arch.tree import ROOT


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
