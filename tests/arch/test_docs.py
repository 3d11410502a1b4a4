"""The documents stay true: every path they name exists, and what is drawn from code is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arch.tree import PACKAGE, ROOT, modules, named, written_files

PAGES = [path for path in written_files() if path.suffix == ".md"]
# What a checkout holds: a folder that a target made, as `.matrix`, may lack what pages say it will hold.
ROOTS = {".ci", "src", "contract", "docs", "tests", "tools", "bench", "examples", "deploy"}
ROOMS = {"core", "stores", "client", "outbox", "runtime", "ops", "cli"}

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.\-]+(/[\w.\-]+)+/?")


def prose(text: str) -> str:
    """The text without its code blocks."""
    return FENCE.sub("", text)


def missing_paths(text: str) -> list[str]:
    """Paths in `code spans` that are not there; a span counts as a path when it begins with a folder of ours."""
    missing = []
    for span in SPAN.findall(text):
        first = span.partition("/")[0]
        if not PATH.fullmatch(span):
            continue
        if first in ROOTS and not (ROOT / span).exists():
            missing.append(span)
        if first in ROOMS and "." in span and not (PACKAGE / span).exists():
            missing.append(span)
    return missing


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def missing_links(page: Path) -> list[str]:
    """Relative links that lead nowhere, anchors included."""
    missing = []
    for link in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name) if name else page
        if not target.exists():
            missing.append(link)
        elif anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", prose(target.read_text()), re.MULTILINE)
            if anchor not in {slug(heading) for heading in headings}:
                missing.append(link)
    return missing


def test_every_path_a_page_names_exists() -> None:
    assert [f"{named(page)}: {path}" for page in PAGES for path in missing_paths(prose(page.read_text()))] == []


def test_every_link_of_a_page_leads_somewhere() -> None:
    assert [f"{named(page)}: {link}" for page in PAGES for link in missing_links(page)] == []


def test_every_path_the_code_names_exists() -> None:
    missing = {named(path): found for path in modules() if (found := missing_paths(path.read_text()))}
    assert missing == {}


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, pending = {index}, [index]
    while pending:
        page = pending.pop()
        for link in LINK.findall(prose(page.read_text())):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in reached:
                reached.add(target)
                pending.append(target)
    pages = {page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name != "evidence"}
    assert sorted(named(page) for page in pages - reached) == []


def test_the_drawing_of_the_states_is_up_to_date() -> None:
    command = [sys.executable, "tools/state_diagram.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("tool", ["tools/store_map.py", "tools/postgres_map.py"])
def test_the_maps_of_what_engines_store_are_up_to_date(tool: str) -> None:
    command = [sys.executable, tool, "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert check.returncode == 0, check.stderr


def test_decisions_are_numbered_without_gaps_and_look_alike() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert headings == ["Problem", "Decision", "Consequences"], named(page)
