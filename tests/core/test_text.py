"""Text from jobs can be kept by every engine, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.text.storable import REASON_CHARS, is_storable, spoken, storable

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_whatever_is_said_can_be_stored(text: str) -> None:
    kept = storable(text)
    kept.encode()
    assert "\x00" not in kept
    assert is_storable(kept)
    assert (kept == text) == (is_storable(text) and len(text) <= REASON_CHARS)


def test_what_cannot_be_stored_is_written_out_and_what_is_long_is_cut() -> None:
    assert storable("a\x00b\udcffc") == "a\\x00b\\udcffc"
    assert storable("é" * 20, 10) == "é" * 9 + "…"
    assert storable(42) == "42"


class Shy:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
def test_what_refuses_to_speak_is_described(error: BaseException) -> None:
    assert spoken(Shy(error)) == f"(its message could not be read: {type(error).__name__})"
