"""Time zones: local times to instants around jumps, and zones that cannot be found are refused with the fix."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.schedules import zone as zones
from limpet.core.schedules.zone import Zone, key_of


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("key", "shown", "instant"),
    [
        ("UTC", "2026-03-29 02:30", "2026-03-29 02:30"),
        ("Europe/Berlin", "2026-03-29 01:59", "2026-03-29 00:59"),
        ("Europe/Berlin", "2026-03-29 02:00", "2026-03-29 01:00"),  # left out: the instant of the jump
        ("Europe/Berlin", "2026-03-29 02:59", "2026-03-29 01:00"),
        ("Europe/Berlin", "2026-03-29 03:00", "2026-03-29 01:00"),
        ("Europe/Berlin", "2026-10-25 02:00", "2026-10-25 00:00"),  # comes twice: the first time
        ("Europe/Berlin", "2026-10-25 02:59", "2026-10-25 00:59"),
        ("Europe/Berlin", "2026-10-25 03:00", "2026-10-25 02:00"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03 15:30"),  # half an hour
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 10:00"),  # a whole day, where the date line moved
        ("America/Sao_Paulo", "2018-11-04 00:30", "2018-11-04 03:00"),  # at midnight
    ],
)
def test_the_instant_of_a_local_time(key: str, shown: str, instant: str) -> None:
    assert Zone(key).instant(seconds(shown)) == seconds(instant)


@pytest.mark.parametrize(("at", "until"), [("2026-10-25 01:00", "03:00"), ("2026-10-25 01:59", "03:00")])
def test_how_far_a_clock_repeats_itself(at: str, until: str) -> None:
    assert Zone("Europe/Berlin").repeated_until(seconds(at)) == seconds(f"2026-10-25 {until}")


def test_a_change_is_found_to_the_second() -> None:
    berlin, jump = Zone("Europe/Berlin"), seconds("2026-03-29 01:00")
    assert berlin.change(jump - 40_000, jump + 50_000) == jump
    assert berlin.change(jump - 1, jump) == jump
    assert berlin.change(jump, jump + 50_000) is None


@pytest.mark.parametrize(
    ("tz", "key"), [("Asia/Tokyo", "Asia/Tokyo"), (ZoneInfo("Asia/Tokyo"), "Asia/Tokyo"), (UTC, "UTC")]
)
def test_a_zone_is_named_or_passed(tz: Any, key: str) -> None:
    assert key_of(tz) == key


@pytest.mark.parametrize("tz", [None, 1, timezone(timedelta(hours=2))])
def test_what_has_no_name_is_refused(tz: Any) -> None:
    with pytest.raises(InvalidOption, match="not a time zone"):
        key_of(tz)


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("Europe/Pariss", "did you mean 'Europe/Paris'?"),
        ("europe/paris", "did you mean 'Europe/Paris'?"),
        ("berlin", "did you mean 'Europe/Berlin'?"),
        ("Middle-earth/Gondor", "such as"),
        ("", "such as"),
        ("Europe", "Europe/"),
        ("../../etc/passwd", "such as"),
        ("/etc/localtime", ""),
        ("localtime", "such as"),
        ("x\0y", "such as"),
    ],
)
def test_an_unknown_zone_is_refused_by_name(key: str, fix: str) -> None:
    with pytest.raises(InvalidOption, match="tz=") as caught:
        Zone(key)
    assert repr(key) in caught.value.message
    assert fix in caught.value.fix


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A system without time zone files and without the tzdata package."""
    monkeypatch.setattr(zones, "available_timezones", set)
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_database")
def test_a_system_without_a_database_is_told_what_to_install() -> None:
    with pytest.raises(InvalidOption, match="no time zone database") as caught:
        Zone("Europe/Berlin")
    assert "pip install tzdata" in caught.value.fix
    assert Zone("UTC").local(0) == 0
