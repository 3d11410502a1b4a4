"""Patterns of queries: only * is special, and no pattern takes longer than its length and the text's tell."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import product

import pytest

from limpet.core.jobs.job import Lane
from limpet.core.jobs.view import Term
from limpet.core.text.wildcard import part_fits, whole_fits
from limpet.stores.match import lane_match_of
from limpet.stores.packed import Extra, encode_extra, extra_matches

PATTERNS = ["".join(letters) for size in range(1, 5) for letters in product("ab*", repeat=size)]
TEXTS = ["".join(letters) for size in range(6) for letters in product("ab", repeat=size)]
LONG = "a" * 60
ENDLESS = "*a" * 30 + "*b"  # tried in every way it would take longer than anyone lives


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_star_stands_for_any_text(pattern: str) -> None:
    assert [text for text in TEXTS if whole_fits(pattern)(text)] == [t for t in TEXTS if fnmatchcase(t, pattern)]
    parts = [text for text in TEXTS if part_fits(pattern.upper())(text)]
    assert parts == [text for text in TEXTS if text and fnmatchcase(text, f"*{pattern}*")]


def test_a_pattern_of_many_stars_is_answered() -> None:
    assert not whole_fits(ENDLESS)(LONG)
    assert not part_fits(ENDLESS)(LONG)
    assert not lane_match_of([Term("queue", ENDLESS)])(Lane(LONG, "task"))
    assert not extra_matches(encode_extra(Extra(tags=(LONG,))), "tag", ENDLESS)
