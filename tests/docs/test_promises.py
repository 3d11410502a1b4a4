"""A promise is only as good as its test: every test that a page names exists where the page says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.arch.tree import ROOT, modules, named
from tests.chaos.test_kills import JOBS, KILLS

PAGES = [ROOT / "docs" / "explanation" / name for name in ("guarantees.md", "checklist.md")]
PROOF = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
ROW = re.compile(r"^\| (\d+) \| .*$", re.MULTILINE)


def functions_of(path: Path) -> set[str]:
    """The names of the functions in a file."""
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    proofs = PROOF.findall(page.read_text())
    assert len(proofs) > 10
    missing = [name for name, where in proofs if name not in functions_of((page.parent / where).resolve())]
    assert missing == []


def test_every_promise_names_a_test() -> None:
    rows = ROW.findall((ROOT / "docs" / "explanation" / "guarantees.md").read_text())
    lines = [
        row for row in (ROOT / "docs" / "explanation" / "guarantees.md").read_text().splitlines() if ROW.match(row)
    ]
    assert [int(number) for number in rows] == list(range(1, 19))
    assert [line for line in lines if not PROOF.search(line)] == []


def test_every_item_of_the_checklist_names_a_test_and_what_the_doctor_says() -> None:
    page = (ROOT / "docs" / "explanation" / "checklist.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if row.startswith("| **")]
    assert len(rows) > 12
    assert [row[0] for row in rows if len(row) != 4 or not PROOF.search(row[3])] == []
    said = {code for row in rows for code in re.findall(r"`(\w+)`", row[2]) if "_" in code}
    written = "".join(path.read_text() for path in (ROOT / "src" / "limpet" / "ops").glob("*.py"))
    rules = {"schedule_missed", "no_worker"}  # alerts, not findings
    missing = [code for code in said - rules if f'"{code}"' not in written and not code.startswith("schedule_")]
    assert missing == []


def test_every_face_says_the_same_of_this_release() -> None:
    import limpet
    from limpet.cli.root import limpet as command

    readme, index = (ROOT / "README.md").read_text(), (ROOT / "docs" / "index.md").read_text()
    for words in (readme.split("##")[0], index.split("**")[0], limpet.__doc__ or "", command.help or ""):
        assert "does not let go of a job" in words
        assert "SQLite" in words
        assert "Redis" in words
        assert "PostgreSQL" in words


def test_our_line_of_the_comparison_says_what_our_test_runs() -> None:
    page = (ROOT / "docs" / "explanation" / "compared.md").read_text()
    (line,) = re.findall(r"^\| \*\*Limpet.*$", page, re.MULTILINE)
    assert "[nothing lost or stuck](../../tests/chaos/test_kills.py)" in line
    assert f"{JOBS:,} jobs and {KILLS} kills in 20 s: on PostgreSQL with every change, on every engine" in " ".join(
        page.split()
    )
    assert f"{JOBS:,} jobs, a worker killed every second for {KILLS} s" in (ROOT / "README.md").read_text()


def test_the_command_line_page_is_up_to_date() -> None:
    """Drawn from the commands' own help; `python tools/cli_reference.py` writes it."""
    from tools.cli_reference import PAGE, written

    page = PAGE.read_text()
    assert written(page) == page


def test_the_python_page_names_every_public_name() -> None:
    import limpet

    pages = "".join((ROOT / "docs" / "reference" / name).read_text() for name in ("python.md", "errors.md"))
    missing = [name for name in limpet.__all__ if not re.search(rf"\b{name}\b", pages) and name != "__version__"]
    assert missing == []


def test_the_python_page_names_every_option() -> None:
    from limpet.client.options import CallOptions
    from limpet.core.tasks.declare import TaskOptions

    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    options = {*TaskOptions.__annotations__, *CallOptions.__annotations__}
    assert sorted(name for name in options if f"`{name}`" not in page) == []


def test_the_settings_page_names_every_key_and_variable() -> None:
    from limpet.core.settings import FileSettings, RetentionTable, WorkerTable

    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    keys = [key for table in (FileSettings, WorkerTable, RetentionTable) for key in table.__struct_fields__]
    assert [key for key in keys if not re.search(rf"\b{key}\b", page)] == []
    read = {
        name
        for path in modules()
        if "demo" not in path.parts  # the demo tells its own processes where they are
        for name in re.findall(r"""["'](LIMPET_[A-Z]+)["']""", path.read_text())
    }
    assert sorted(name for name in read if name not in page) == []
