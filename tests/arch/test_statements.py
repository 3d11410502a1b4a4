"""Statement files: `ls` lists what an engine can do, so each file says what it promises and none lies unused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.arch.tree import PACKAGE, named, written_files

STORES = PACKAGE / "stores"
OUTBOX = PACKAGE / "outbox"
FILES = [path for top in (STORES, OUTBOX) for path in written_files(top) if path.suffix in {".sql", ".lua"}]
LIBRARIES = [path for path in FILES if path.parent.name == "lib"]  # rooms that scripts share; none runs alone
STATEMENTS = [path for path in FILES if path not in LIBRARIES]
SAYS = {".sql": ("promise", "inputs", "answer"), ".lua": ("promise", "keys", "args", "answer", "bounds")}
NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def code_of_engine(path: Path) -> str:
    """All the Python of the engine, or of the outbox, that a statement file belongs to."""
    engine = STORES / path.relative_to(STORES).parts[0] if path.is_relative_to(STORES) else OUTBOX
    return "\n".join(module.read_text() for module in written_files(engine) if module.suffix == ".py")


@pytest.mark.parametrize("path", STATEMENTS, ids=named)
def test_a_statement_file_opens_with_its_promise(path: Path) -> None:
    header = re.match(r"(--.*\n)+", path.read_text())
    assert header is not None, f"{named(path)} opens without a comment"
    words = header.group().lower()
    assert [word for word in SAYS[path.suffix] if f"{word}:" not in words] == []


@pytest.mark.parametrize("path", STATEMENTS, ids=named)
def test_every_statement_is_used_by_its_engine(path: Path) -> None:
    code, names = code_of_engine(path), NAME.findall(path.read_text())
    if not names:
        # A file without named statements is run whole: a numbered layout, or one script.
        assert re.match(r"schema_\d+$|\d+", path.stem) or path.stem in code, f"nothing runs {named(path)}"
    unused = [name for name in names if not re.search(rf"""["'.]{name}\b""", code)]
    assert unused == []


@pytest.mark.parametrize("path", LIBRARIES, ids=named)
def test_a_library_says_what_it_is_and_some_script_names_it(path: Path) -> None:
    assert path.read_text().startswith("-- ")
    scripts = [script.read_text() for script in path.parent.parent.glob("*.lua")]
    assert any(re.search(rf"^-- (Uses|Short way):.* {path.stem}( |$)", script, re.MULTILINE) for script in scripts)
