"""Amounts are whole numbers of what they count, money exact to the millionth of a dollar."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption
from limpet.core.limits.unit import ONE, Cost, amount_of, amount_text, amounts_from, cost_from, public_amount


class Int64:
    """An integer that is no int, as numpy's are."""

    def __index__(self) -> int:
        return 5


class Truth:
    """What numpy's truths say when they are taken for a number."""

    def __index__(self) -> int:
        raise TypeError("no integer")


@pytest.mark.parametrize(
    ("unit", "value", "stored"),
    [
        ("usd", 50, 50_000_000),
        ("usd", 0.1, 100_000),
        ("usd", Decimal("0.02"), 20_000),
        ("usd", "1.5", 1_500_000),
        ("usd", 0.0000001, 1),
        ("usd", 2.0000001, 2_000_001),
        ("usd", 0, 0),
        ("tokens", 1834, 1834),
        ("tokens", 2.0, 2),
        ("cost", 7, 7),
        ("tokens", Int64(), 5),
        ("usd", Int64(), 5_000_000),
        ("usd", Fraction(3), 3_000_000),
    ],
)
def test_amounts_are_stored_exactly_and_money_is_rounded_up(unit: str, value: Any, stored: int) -> None:
    assert amount_of(unit, value, what="spent") == stored


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        *(("usd", wrong) for wrong in (-0.01, float("nan"), float("inf"), True, None, "ten", [1], 1_000_001)),
        *(("tokens", wrong) for wrong in (-1, 1.5, "x", False, 1_000_000_001, Truth())),
        ("cost", 100_001),
    ],
)
def test_what_is_no_amount_is_refused_by_name(unit: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=rf"spent must be .*amount of {unit}, got|spent must be an integer"):
        amount_of(unit, value, what="spent")


@given(st.integers(0, 1_000_000_000_000))
def test_money_that_was_shown_is_read_back_to_the_millionth(stored: int) -> None:
    assert amount_of("usd", public_amount("usd", stored), what="x") == stored


@pytest.mark.parametrize(
    ("unit", "stored", "text"),
    [
        ("usd", 50_000_000, "$50"),
        ("usd", 400_000, "$0.40"),
        ("usd", 21_300, "$0.0213"),
        ("usd", -20_000, "-$0.02"),
        ("usd", 1_234_000_000_000, "$1,234,000"),
        ("tokens", 1834, "1,834 tokens"),
        ("input_tokens", 900, "900 input tokens"),
        ("cost", 3, "cost 3"),
        ("", 3, "cost 3"),
    ],
)
def test_amounts_in_words(unit: str, stored: int, text: str) -> None:
    assert amount_text(unit, stored) == text


def test_a_cost_is_a_number_or_amounts_by_unit() -> None:
    assert cost_from(Int64()) == Cost(5)
    assert cost_from(3) == Cost(3)
    assert cost_from({"usd": 0.01, "input_tokens": 900}) == Cost(1, {"usd": 10_000, "input_tokens": 900})
    assert cost_from({"cost": 2, "tokens": 5}) == Cost(2, {"tokens": 5})
    assert cost_from({}) == ONE
    assert [cost_from({"cost": 2, "usd": 1}).of(unit) for unit in ("cost", "usd", "tokens")] == [2, 1_000_000, 0]


def test_one_call_replaces_the_units_that_it_names() -> None:
    declared = cost_from({"cost": 2, "usd": 0.5, "tokens": 10})
    assert declared.replaced(amounts_from(7)) == Cost(7, {"usd": 500_000, "tokens": 10})
    assert declared.replaced(amounts_from({"usd": 0.1})) == Cost(2, {"usd": 100_000, "tokens": 10})


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (-1, r"cost must be an integer ≥ 0, got -1"),
        (1.5, r"cost must be an integer ≥ 0, got 1.5"),
        ({"token": 1}, r"cost counts 'token' \(units are cost, tokens"),
        ({"requests": 1}, r"counts 'requests' .*use 'cost'"),
        ({"usd": -1}, r"cost\['usd'\] must be an amount of usd, got -1"),
        ({"tokens": 0.5}, r"cost\['tokens'\] must be .*got 0.5 .*only dollars have fractions"),
        ({3: 1}, r"cost counts 3"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused_by_name(cost: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        cost_from(cost)
