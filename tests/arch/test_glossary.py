"""The glossary stays short enough to be read in one sitting, and has one row per word."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from tests.arch.test_words import DOCS

ROW: Final = re.compile(r"^\| \*\*(.+?)\*\*(?: \([^)]*\))? \| (.+?) \|", re.MULTILINE)
MOST: Final = 60


def rows() -> list[tuple[str, str]]:
    """Every word, or pair of words, and its meaning."""
    page = (DOCS / "glossary.md").read_text()
    found = ROW.findall(page)
    assert len(found) == len([line for line in page.splitlines() if line.startswith("| **")])
    return found


def test_the_glossary_has_at_most_sixty_rows() -> None:
    assert 0 < len(rows()) <= MOST


def test_no_word_has_two_rows() -> None:
    words = Counter(word.strip().lower() for heading, _ in rows() for word in heading.split(","))
    assert [word for word, count in words.items() if count > 1] == []


def test_every_meaning_is_made_of_sentences() -> None:
    assert [
        word for word, meaning in rows() if not (meaning[0].isupper() or meaning[0].isdigit()) or meaning[-1] != "."
    ] == []
