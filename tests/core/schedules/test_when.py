"""What people write: Cron, Every and Once with their policies become rules, and nonsense is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.schedules.policy import MOST_CAUGHT_UP, Overlap, TickPolicy, catch_up_text
from limpet.core.schedules.rule import CronRule, EveryRule, OnceRule
from limpet.core.schedules.when import Cron, Every, Once, When

NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)
NEW_YEAR_MS = 1_893_456_000_000


@pytest.mark.parametrize(
    ("when", "rule"),
    [
        (Cron("0 8 * * *"), CronRule("0 8 * * *", "UTC")),
        (Cron(" 0  8 * * * ", tz="Europe/Paris"), CronRule("0 8 * * *", "Europe/Paris")),
        (Cron("@daily", ZoneInfo("Asia/Tokyo")), CronRule("@daily", "Asia/Tokyo")),
        (Cron("@daily", UTC), CronRule("@daily", "UTC")),
        (Every(300), EveryRule(300_000)),
        (Every(timedelta(minutes=5)), EveryRule(300_000)),
        (Every("5m"), EveryRule(300_000)),
        (Every(1.5), EveryRule(1_500)),
        (Every("1d", anchor=NEW_YEAR), EveryRule(86_400_000, NEW_YEAR_MS)),
        (Once(NEW_YEAR), OnceRule(NEW_YEAR_MS)),
    ],
)
def test_what_people_write(when: When, rule: Any) -> None:
    assert when.rule == rule
    assert when.policy == TickPolicy()
    assert when.describe() == rule.describe()


def test_the_defaults_are_the_documented_ones() -> None:
    assert Cron("@daily") == Cron("@daily", tz="UTC", overlap="skip", catch_up="last", jitter=0, expires_in=None)
    assert TickPolicy() == TickPolicy.of(overlap="skip", catch_up="last", jitter=0)


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({"overlap": "skip"}, TickPolicy(overlap=Overlap.skip)),
        ({"overlap": "queue_one"}, TickPolicy(overlap=Overlap.queue_one)),
        ({"overlap": "queue one"}, TickPolicy(overlap=Overlap.queue_one)),
        ({"overlap": "allow"}, TickPolicy(overlap=Overlap.allow)),
        ({"overlap": "cancel-running"}, TickPolicy(overlap=Overlap.cancel_running)),
        ({"overlap": Overlap.allow}, TickPolicy(overlap=Overlap.allow)),
        ({"catch_up": "skip"}, TickPolicy(catch_up=0)),
        ({"catch_up": "last"}, TickPolicy(catch_up=1)),
        ({"catch_up": "all"}, TickPolicy(catch_up=MOST_CAUGHT_UP)),
        ({"catch_up": 5}, TickPolicy(catch_up=5)),
        ({"catch_up": "5"}, TickPolicy(catch_up=5)),
        ({"jitter": "30s"}, TickPolicy(jitter_ms=30_000)),
        ({"expires_in": timedelta(hours=1)}, TickPolicy(expires_ms=3_600_000)),
    ],
)
def test_policies(options: dict[str, Any], policy: TickPolicy) -> None:
    assert Cron("@daily", **options).policy == policy
    assert Every("1d", **options).policy == policy
    assert Once(NEW_YEAR, **options).policy == policy


@pytest.mark.parametrize(
    ("options", "said", "fix"),
    [
        ({"overlap": "skipp"}, "overlap='skipp'", "did you mean 'skip'?"),
        ({"overlap": "wait"}, "overlap='wait'", "queue_one"),
        ({"overlap": None}, "overlap=None", "skip"),
        ({"catch_up": "newest"}, "catch_up='newest'", '"last"'),
        ({"catch_up": -1}, "catch_up=-1", '"last"'),
        ({"catch_up": 1_001}, "catch_up=1001", "1,000"),
        ({"catch_up": True}, "catch_up=True", '"last"'),
        ({"catch_up": None}, "catch_up=None", '"last"'),
        ({"jitter": -1}, "jitter=-1", "seconds"),
        ({"jitter": "soon"}, "jitter='soon'", "seconds"),
        ({"expires_in": 0}, "expires_in=0", "None"),
    ],
)
def test_policies_that_make_no_sense_are_refused(options: dict[str, Any], said: str, fix: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Cron("@daily", **options)
    assert said in caught.value.message
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: Cron("0 8 * *"), "4 fields"),
        (lambda: Cron("0 8 * * *", tz="Mars/Base"), "tz='Mars/Base'"),
        (lambda: Every(0), "more often than once a second"),
        (lambda: Every("999ms"), "more often than once a second"),
        (lambda: Every("weekly"), "Every(interval)='weekly'"),
        (lambda: Every(60, anchor=datetime(2030, 1, 1)), "no time zone"),  # noqa: DTZ001  what is refused
        (lambda: Once(datetime(2030, 1, 1)), "no time zone"),  # noqa: DTZ001  what is refused
        (lambda: Once("2030-01-01"), "not a datetime"),  # type: ignore[arg-type]  # what untyped callers pass
    ],
)
def test_what_makes_no_sense_is_refused_while_it_is_on_screen(write: Any, said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        write()
    assert said in caught.value.message


def test_the_next_runs_are_told_in_the_zone_of_the_schedule() -> None:
    since = datetime(2026, 3, 28, 12, tzinfo=UTC)
    runs = Cron("0 9 * * *", tz="Europe/Berlin").upcoming(since, 2)
    assert [run.isoformat() for run in runs] == ["2026-03-29T09:00:00+02:00", "2026-03-30T09:00:00+02:00"]
    assert Every("1d").upcoming(since, 1) == [datetime(2026, 3, 29, tzinfo=UTC)]
    assert Once(NEW_YEAR).upcoming(since) == [NEW_YEAR]
    assert Once(NEW_YEAR).upcoming(NEW_YEAR) == []
    with pytest.raises(InvalidOption, match="after="):
        Once(NEW_YEAR).upcoming(datetime(2026, 1, 1))  # noqa: DTZ001  what is refused


@pytest.mark.parametrize(("catch_up", "text"), [(0, "skip"), (1, "last"), (5, "all up to 5")])
def test_missed_runs_in_words(catch_up: int, text: str) -> None:
    assert catch_up_text(catch_up) == text
