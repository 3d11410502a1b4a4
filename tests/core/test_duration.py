"""Durations and instants: what people write becomes exact milliseconds, and nonsense is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption
from limpet.core.text.duration import instant_ms, iso, text_of_ms, to_ms


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (0, 0),
        (5, 5_000),
        (0.25, 250),
        (1e-9, 1),
        (timedelta(minutes=2), 120_000),
        ("250ms", 250),
        ("30s", 30_000),
        ("30", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        (" 2D ", 172_800_000),
        ("1w", 604_800_000),
    ],
)
def test_what_people_write(value: Any, ms: int) -> None:
    assert to_ms(value, what="delay") == ms


@pytest.mark.parametrize(
    "value",
    [-1, -0.1, float("nan"), float("inf"), True, None, "", "soon", "5 minutes", "m", "5m x", "-5s", "nan", [], 1e14],
)
def test_what_is_no_duration_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidOption, match="delay=") as caught:
        to_ms(value, what="delay")
    assert repr(value) in str(caught.value)
    assert caught.value.fix


@given(st.integers(0, 10**10))
def test_text_of_a_duration_reads_back_to_within_its_smallest_unit(ms: int) -> None:
    text = text_of_ms(ms)
    back = to_ms(text, what="text")
    assert back <= ms
    assert ms - back < max(100, ms // 20)
    assert text_of_ms(-ms) == (f"-{text}" if ms else text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (999, "999ms"), (1_500, "1.5s"), (59_999, "59.9s"), (60_000, "1m"), (5_400_000, "1h30m")],
)
def test_text_of_a_duration(ms: int, text: str) -> None:
    assert text_of_ms(ms) == text


def test_only_two_units_are_shown() -> None:
    assert text_of_ms(86_400_000 + 3_600_000 + 60_000) == "1d1h"
    assert text_of_ms(86_400_000 + 60_000) == "1d"


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])


@given(st.datetimes(datetime(1, 1, 2), timezones=ZONES))  # noqa: DTZ001  ZONES adds it
def test_instants_are_the_same_in_every_zone(moment: datetime) -> None:
    ms = instant_ms(moment)
    assert ms == instant_ms(moment.astimezone(UTC))
    assert instant_ms(datetime.fromisoformat(iso(ms))) == ms


def test_an_instant_is_written_in_utc() -> None:
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_a_number_that_overflows_in_milliseconds_is_refused() -> None:
    with pytest.raises(InvalidOption, match="longer than a century"):
        to_ms(1e308, what="delay")


def test_an_instant_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidOption, match="is beyond the calendar in UTC"):
        instant_ms(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))))


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no time zone"):
        instant_ms(datetime(2030, 1, 1))  # noqa: DTZ001  what is refused
    with pytest.raises(InvalidOption, match="not a datetime"):
        instant_ms("2030-01-01")  # type: ignore[arg-type]  # what untyped callers pass
