"""Reference pages list exactly what the code has."""

from __future__ import annotations

import re

from holdfast.core import errors
from tests.arch.tree import ROOT


def test_the_page_of_errors_lists_every_error_with_its_code() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| `(\w+)`", page, re.MULTILINE))
    raised = {
        (name, kind.code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
    }
    assert listed == raised - {("HoldfastError", "holdfast")}


def test_the_page_of_errors_says_which_are_retryable() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    listed = dict(re.findall(r"^\| `(Store\w+|SchemaOutdated)` \| `\w+` \| (yes|no)", page, re.MULTILINE))
    raised = {
        name: "yes" if kind.retryable else "no"
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.StoreError)
    }
    assert listed == raised
