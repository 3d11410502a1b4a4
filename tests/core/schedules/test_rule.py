"""Rules: what follows from "the next tick" alone, for every kind of rule."""

from __future__ import annotations

from itertools import islice, takewhile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.schedules.rule import AnyRule, CronRule, EveryRule, OnceRule, Rule

NOW = 1_774_742_400_000  # 2026-03-29 00:00 UTC, the day on which Berlin changes its clocks
DAY_MS = 86_400_000

RULES: st.SearchStrategy[AnyRule] = st.one_of(
    st.builds(EveryRule, st.integers(1_000, 3 * DAY_MS), st.integers(-NOW, NOW)),
    st.builds(OnceRule, st.integers(NOW - DAY_MS, NOW + 3 * DAY_MS)),
    st.builds(
        CronRule,
        st.sampled_from(
            [
                "30 2 * * *",
                "*/15 * * * *",
                "0 9-17 * * MON-FRI",
                "@hourly",
                "0,1,2 2 * * *",
                "0 0 1 1 *",
                "*/7 30 2 * * *",
            ]
        ),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    ),
)
INSTANTS = st.integers(NOW - DAY_MS, NOW + 2 * DAY_MS)


@pytest.mark.parametrize(
    ("rule", "after", "tick"),
    [
        (EveryRule(60_000), 0, 60_000),
        (EveryRule(60_000), 59_999, 60_000),
        (EveryRule(60_000), 60_000, 120_000),
        (EveryRule(60_000, 5_000), 0, 5_000),
        (EveryRule(60_000, 65_000), 0, 5_000),  # the anchor sets the phase, not a beginning
        (EveryRule(60_000, -55_000), 0, 5_000),
        (EveryRule(1_500), 1_000, 1_500),
        (OnceRule(1_000), 0, 1_000),
        (OnceRule(1_000), 999, 1_000),
        (OnceRule(1_000), 1_000, None),
        (CronRule("* * * * * *"), 999, 1_000),
        (CronRule("* * * * * *"), 1_000, 2_000),
        (CronRule("0 0 1 1 *"), -1, 0),
    ],
)
def test_the_next_tick(rule: Rule, after: int, tick: int | None) -> None:
    assert rule.after(after) == tick


@given(RULES, st.integers(-(10**15), -1))
def test_ticks_begin_in_1970(rule: Rule, at_ms: int) -> None:
    assert rule.after(at_ms) == rule.after(-1)
    assert (rule.after(at_ms) or 0) >= 0


def test_cron_ends_with_the_calendar() -> None:
    end_ms = 253_370_764_800_000  # 9999-01-01
    assert CronRule("@daily").after(end_ms) is None
    assert CronRule("@daily", "Asia/Tokyo").after(end_ms) is None
    assert CronRule("@hourly", "Asia/Tokyo").after(end_ms) is None


@given(RULES, INSTANTS, st.integers(0, DAY_MS), st.integers(0, 50))
def test_a_range_is_what_asking_for_the_next_gives(rule: Rule, start: int, length: int, limit: int) -> None:
    asked = takewhile(lambda tick: tick <= start + length, rule.iterate(start))
    assert rule.between(start, start + length, limit) == list(islice(asked, limit))


@given(RULES, INSTANTS, st.integers(0, 6 * 3_600_000))
def test_the_latest_is_the_last_of_the_range(rule: Rule, start: int, length: int) -> None:
    ticks = rule.between(start, start + length, 100_000)
    assert rule.latest(start, start + length) == (ticks[-1] if ticks else None)


def test_the_latest_of_a_year_of_seconds_is_found_by_halving() -> None:
    asked = 0

    class Counting(CronRule, frozen=True):
        def _after(self, at_ms: int) -> int | None:
            nonlocal asked
            asked += 1
            return super()._after(at_ms)

    # Seconds until the end of September, seen from December: walking through them would take millions of steps.
    rule = Counting("* * * * 1-9 *")
    assert rule.latest(NOW - 365 * DAY_MS, NOW - 100 * DAY_MS) == 1_759_276_799_000
    assert asked < 100


@given(RULES)
def test_a_rule_survives_being_stored(rule: AnyRule) -> None:
    again = msgspec.json.decode(msgspec.json.encode(rule), type=CronRule | EveryRule | OnceRule)
    assert again == rule
    assert again.after(NOW) == rule.after(NOW)
    assert again.describe() == rule.describe()
