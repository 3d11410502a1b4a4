"""Rates as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption
from limpet.core.limits.rate import parse_rate


@pytest.mark.parametrize(
    ("rate", "count", "interval_us"),
    [
        ("10/s", 10, 100_000),
        ("10/m", 10, 6_000_000),
        ("3/s", 3, 333_334),
        ("1/h", 1, 3_600_000_000),
        ("1/d", 1, 86_400_000_000),
        ("3/30s", 3, 10_000_000),
        ("100/10ms", 100, 100),
        (" 5 / 1.5 m ", 5, 18_000_000),
        ("10/sec", 10, 100_000),
        ("10/2 second", 10, 200_000),
        ("10/min", 10, 6_000_000),
        ("10/minute", 10, 6_000_000),
        ("1/hour", 1, 3_600_000_000),
        ("1/day", 1, 86_400_000_000),
    ],
)
def test_rates(rate: str, count: int, interval_us: int) -> None:
    assert parse_rate(rate) == (count, interval_us)


@given(st.integers(1, 10**6), st.sampled_from("smhd"))
def test_a_rate_is_never_faster_than_asked(count: int, unit: str) -> None:
    found, interval_us = parse_rate(f"{count}/{unit}")
    period_us = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[unit] * 1_000_000
    assert found == count
    assert interval_us * count >= period_us
    assert (interval_us - 1) * count < period_us


@pytest.mark.parametrize(
    "rate",
    ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/y", "10/month", "10/mi", "10 per s", "2000000/s", 10, None],
)
def test_a_rate_that_cannot_be_read_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidOption, match="rate"):
        parse_rate(rate)
