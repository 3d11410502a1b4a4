"""Statement files: `ls` lists what an engine can do, so each file says what it promises and none lies unused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.arch.tree import PACKAGE, named, written_files

STORES = PACKAGE / "stores"
OUTBOX = PACKAGE / "outbox"
FILES = [path for top in (STORES, OUTBOX) for path in written_files(top) if path.suffix in {".sql", ".lua"}]
LIBRARIES = [path for path in FILES if "lib" in path.parts]  # what scripts share, and parts of it; none runs alone
STATEMENTS = [path for path in FILES if path not in LIBRARIES]
SAYS = {".sql": ("promise", "inputs", "answer"), ".lua": ("promise", "keys", "args", "answer", "bounds")}
NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def code_of_engine(path: Path) -> str:
    """All the Python of the engine, or of the outbox, that a statement file belongs to."""
    return code_in(STORES / path.relative_to(STORES).parts[0] if path.is_relative_to(STORES) else OUTBOX)


@cache
def code_in(engine: Path) -> str:
    return "\n".join(module.read_text() for module in written_files(engine) if module.suffix == ".py")


def header_of(path: Path) -> str:
    """The comment that a file opens with, in small letters."""
    header = re.match(r"(--.*\n)*", path.read_text())
    return header.group().lower() if header else ""


def test_a_statement_file_opens_with_its_promise() -> None:
    headers = {path: header_of(path) for path in STATEMENTS}
    words = [(path, word) for path in headers for word in SAYS[path.suffix]]
    assert [f"{named(path)}: {word}" for path, word in words if f"{word}:" not in headers[path]] == []


def test_every_statement_is_used_by_its_engine() -> None:
    assert [f"{named(path)}: {name}" for path in STATEMENTS for name in unused_in(path)] == []


def unused_in(path: Path) -> list[str]:
    """The statements of a file that its engine does not use."""
    code, names = code_of_engine(path), NAME.findall(path.read_text())
    if not names:
        # A file without named statements is run whole: a numbered layout, or one script.
        runs = re.match(r"schema_\d+$|\d+", path.stem) or path.stem in code
        return [] if runs else ["the whole file"]
    return [name for name in names if not re.search(rf"""["'.]{name}\b""", code)]


def test_a_library_says_what_it_is_and_some_script_names_it() -> None:
    assert [named(path) for path in LIBRARIES if not path.read_text().startswith("-- ")] == []
    assert [named(path) for path in LIBRARIES if not is_named(path)] == []


def is_named(library: Path) -> bool:
    """Whether a script says that it uses a library, or a library that this file is a part of it."""
    if library.parent.name != "lib":
        part = re.compile(rf"^ *-- Part: {library.parent.name}/{library.stem}$", re.MULTILINE)
        return any(part.search(whole.read_text()) for whole in library.parent.parent.glob("*.lua"))
    scripts = [script.read_text() for script in library.parent.parent.glob("*.lua")]
    names = re.compile(rf"^-- (Uses|Fast path):.* {library.stem}( |$)", re.MULTILINE)
    return any(names.search(script) for script in scripts)
