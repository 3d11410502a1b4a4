"""A value can neither end its line nor begin another: quotes, newlines and control characters are written out."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.text.log_line import TRACEBACK_BYTES, Said, indented, last_lines, value_text, words

ANY = st.text(alphabet=st.characters())  # half characters, controls and line ends included


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (True, "true"),
        (None, "null"),
        ("mail", "mail"),
        ("", '""'),
        ("connection refused by host", '"connection refused by host"'),
        ('say "no"', r'"say \"no\""'),
        ("a=b", '"a=b"'),
        ("first\nINFO forged", r'"first\nINFO forged"'),
        ("\x1b[2K\r", r'"\x1b[2K\x0d"'),
        ("a\u2028b", r'"a\u2028b"'),
        (OSError("no route"), '"no route"'),
        (["paid", "sent now"], '"paid,sent now"'),
    ],
)
def test_a_value_is_bare_when_it_is_plain_and_quoted_otherwise(value: object, text: str) -> None:
    assert value_text(value) == text


@given(ANY)
def test_no_value_leaves_its_quotes(value: str) -> None:
    text = words({"a": value, "b": "end"})
    assert len(text.splitlines()) == 1
    assert text.encode()  # no half character is left either
    first, last = shlex.split(text, posix=True)  # reads quotes and backslashes as such a line has them
    assert (first[:2], last) == ("a=", "b=end")


@given(ANY)
def test_only_the_first_line_of_a_record_begins_at_the_margin(text: str) -> None:
    assert all(line.startswith("  ") for line in indented(text).splitlines()[1:])


def test_lines_that_belong_to_an_event_follow_it() -> None:
    said = str(Said({"error": "a b", "traceback": "one\ntwo"}))
    assert said == ' error="a b"\none\ntwo'


def test_of_a_long_traceback_the_end_is_kept() -> None:
    assert last_lines("one\ntwo\n") == "one\ntwo"
    kept = last_lines("\n".join(f'line "{number}"' for number in range(10_000)))
    assert kept.startswith("(cut)\nline")
    assert kept.endswith('line "9999"')
    assert TRACEBACK_BYTES - 50 < len(json.dumps(kept)) < TRACEBACK_BYTES + 20
    assert last_lines("one\n" + "x" * 20_000) == "one\n" + "x" * 499 + "…"
