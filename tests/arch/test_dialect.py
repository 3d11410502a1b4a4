"""Comments, docstrings, messages and pages name the actor: "a worker", "another call", never "somebody"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.arch.tree import ROOT, named, written_files

# Pronouns and idioms that hide the noun, and that a reader of English as a second language stumbles over.
WORDS: Final = (
    "whoever",
    "whom",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "those who",
    "so many",
    "anew",
    "in truth",
    "owns? up",
    "the other side",
    "goes on",
)
FOLDERS: Final = ("src", "contract", "tools", "bench", "examples", "docs")
SUFFIXES: Final = {".py", ".lua", ".sql", ".md"}
# A phrase may be broken over two lines of a comment. A link's target is a name, not prose.
PHRASES: Final = re.compile(
    r"\b(" + "|".join(word.replace(" ", r"\s+(?:(?:#|--)\s*)?") for word in WORDS) + r")\b", re.IGNORECASE
)
TARGET: Final = re.compile(r"\]\([^)]*\)")


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Where the words are: the number of the line, and the word."""
    plain = TARGET.sub("]", text)
    for match in PHRASES.finditer(plain):
        yield plain.count("\n", 0, match.start()) + 1, " ".join(match.group().split())


def sources() -> list[Path]:
    inside = [path for path in written_files() if path.suffix in SUFFIXES]
    return [path for path in inside if path.parent == ROOT or path.relative_to(ROOT).parts[0] in FOLDERS]


def test_prose_names_the_actor() -> None:
    found = [f"{named(path)}:{line}: {word}" for path in sources() for line, word in found_in(path.read_text())]
    assert found == []


def test_the_words_are_found() -> None:
    text = 'x = 1  # for those\n# who wait\n"""Nobody is [here](whoever.md)."""\n-- so\n-- many\nno_nobody()'
    assert list(found_in(text)) == [(1, "those # who"), (3, "Nobody"), (4, "so -- many")]
