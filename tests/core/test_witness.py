"""Whether a store is the one that was seen before, decided from its name and its newest token."""

from __future__ import annotations

import pytest

from limpet.core.jobs.witness import Sight, change


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (Sight(), Sight("a", 5), None),
        (Sight("a", 5), Sight(), None),
        (Sight("a", 5), Sight("a", 5), None),
        (Sight("a", 5), Sight("a", 6), None),
        (Sight("a", 5), Sight("a", 4), "older"),
        (Sight("a", 5), Sight("b", 9), "other"),
        (Sight("a", 5), Sight("b", 4), "other"),
    ],
)
def test_what_became_of_a_store(before: Sight, now: Sight, kind: str | None) -> None:
    found = change(before, now)
    assert (found and found.kind) == kind


def test_it_is_said_with_names_times_and_what_to_do() -> None:
    other, older = change(Sight("a", 5), Sight("b")), change(Sight("a", 2_048_000), Sight("a", 0))
    assert other is not None
    assert older is not None
    assert "its name was a and is b" in other.text
    assert "given out a lease at 1970-01-01T00:00:01.000Z" in older.text
    assert all("enqueue them again under their ids" in each.fix for each in (other, older))
