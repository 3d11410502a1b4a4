"""Plans: which ticks fire, which are dropped, when to look again; the same for everyone, and each tick once."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.schedules.plan import MOST_COUNTED, ON_TIME_MS, Plan, due_at_ms, plan, tick_id, tick_job
from limpet.core.schedules.policy import TickPolicy
from limpet.core.schedules.rule import CronRule, EveryRule, OnceRule, Rule

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOON = 20_000 * DAY + 12 * HOUR
HOURLY, MINUTELY, SECONDLY = EveryRule(HOUR), EveryRule(MINUTE), EveryRule(1_000)


def ticks(planned: Plan) -> list[int]:
    return [firing.tick_at_ms for firing in planned.fire]


def planned(rule: Rule, last: int, now: int, **policy: int | None) -> Plan:
    return plan("digest", rule, TickPolicy(**policy), last, now)  # type: ignore[arg-type]  # no overlap here


def test_nothing_is_due() -> None:
    assert planned(HOURLY, NOON, NOON + 5) == Plan(wake_at_ms=NOON + HOUR)


def test_a_clock_behind_the_last_tick_waits_for_the_next_one() -> None:
    assert planned(HOURLY, NOON, NOON - DAY) == Plan(wake_at_ms=NOON + HOUR)


def test_a_due_tick_fires() -> None:
    found = planned(HOURLY, NOON - HOUR, NOON)
    assert ticks(found) == [NOON]
    assert (found.decided_at_ms, found.dropped, found.wake_at_ms) == (NOON, 0, NOON + HOUR)
    assert not found.fire[0].late


def test_after_the_last_tick_there_is_nothing_to_wake_for() -> None:
    found = planned(OnceRule(NOON), NOON - DAY, NOON + 5)
    assert ticks(found) == [NOON]
    assert found.wake_at_ms is None
    assert planned(OnceRule(NOON), NOON, NOON + 5) == Plan()


@pytest.mark.parametrize(
    ("catch_up", "fired", "dropped"),
    [
        (0, [], 5),  # skip
        (1, [4], 4),  # last
        (2, [3, 4], 3),
        (5, [0, 1, 2, 3, 4], 0),
        (9, [0, 1, 2, 3, 4], 0),
    ],
)
def test_of_missed_ticks_the_newest_fire_late(catch_up: int, fired: list[int], dropped: int) -> None:
    found = planned(HOURLY, NOON - HOUR, NOON + 4 * HOUR + 30 * MINUTE, catch_up=catch_up)
    assert ticks(found) == [NOON + n * HOUR for n in fired]
    assert all(firing.late for firing in found.fire)
    assert (found.dropped, found.decided_at_ms) == (dropped, NOON + 4 * HOUR)
    assert (found.dropped_at_ms, found.dropped_why) == (NOON + (dropped - 1) * HOUR if dropped else None, "missed")
    assert found.wake_at_ms == NOON + 5 * HOUR


def test_a_tick_is_on_time_for_a_minute_whatever_becomes_of_missed_ones() -> None:
    assert ticks(planned(HOURLY, NOON - HOUR, NOON + ON_TIME_MS, catch_up=0)) == [NOON]
    assert ticks(planned(HOURLY, NOON - HOUR, NOON + ON_TIME_MS + 1, catch_up=0)) == []


def test_every_tick_within_that_minute_fires() -> None:
    found = planned(SECONDLY, NOON - 1_000, NOON + 5_000, catch_up=0)
    assert ticks(found) == [NOON + n * 1_000 for n in range(6)]
    assert found.dropped == 0


def test_ticks_on_time_do_not_count_as_caught_up() -> None:
    found = planned(MINUTELY, NOON - MINUTE, NOON + 10 * MINUTE + 5_000, catch_up=2)
    assert ticks(found) == [NOON + 8 * MINUTE, NOON + 9 * MINUTE, NOON + 10 * MINUTE]
    assert [firing.late for firing in found.fire] == [True, True, False]
    assert found.dropped == 8


def test_expired_ticks_do_not_fire() -> None:
    now = NOON + 4 * HOUR + 30 * MINUTE
    found = planned(HOURLY, NOON - HOUR, now, catch_up=9, expires_ms=2 * HOUR)
    assert ticks(found) == [NOON + 3 * HOUR, NOON + 4 * HOUR]
    assert [firing.expires_at_ms for firing in found.fire] == [NOON + 5 * HOUR, NOON + 6 * HOUR]
    assert (found.dropped, found.decided_at_ms) == (3, NOON + 4 * HOUR)
    assert (found.dropped_at_ms, found.dropped_why) == (NOON + 2 * HOUR, "expired")


def test_a_tick_on_time_may_have_expired_all_the_same() -> None:
    assert ticks(planned(HOURLY, NOON - HOUR, NOON + 9_999, expires_ms=10_000)) == [NOON]
    found = planned(HOURLY, NOON - HOUR, NOON + 10_000, expires_ms=10_000)
    assert (ticks(found), found.dropped, found.decided_at_ms) == ([], 1, NOON)


def test_years_of_seconds_are_not_counted_to_the_end() -> None:
    found = planned(SECONDLY, 0, NOON + 500, catch_up=3)
    assert ticks(found)[-1] == NOON
    assert len(found.fire) == ON_TIME_MS // 1_000 + 3
    assert found.dropped == MOST_COUNTED


def test_clock_changes_leave_nothing_out_and_double_nothing() -> None:
    rule = CronRule("30 2 * * *", "Europe/Berlin")
    spring = 1_774_656_000_000  # 2026-03-28 00:00 UTC
    found = planned(rule, spring, spring + 5 * DAY, catch_up=9)
    assert [tick - spring for tick in ticks(found)] == [
        HOUR + 30 * MINUTE,
        DAY + HOUR,  # at the jump
        *(n * DAY + 30 * MINUTE for n in (2, 3, 4)),
    ]


# Jitter


def test_jitter_is_the_same_for_everyone_and_differs_between_schedules_and_ticks() -> None:
    policy = TickPolicy(jitter_ms=10 * MINUTE)
    due = due_at_ms("digest", HOURLY, policy, NOON)
    assert due == due_at_ms("digest", HOURLY, policy, NOON) == 1_728_043_255_601
    spread = {due_at_ms(f"digest-{n}", HOURLY, policy, NOON) - NOON for n in range(200)}
    assert len(spread) > 190
    assert 0 <= min(spread) < MINUTE
    assert 9 * MINUTE < max(spread) <= 10 * MINUTE
    assert len({due_at_ms("digest", HOURLY, policy, NOON + n * HOUR) - NOON - n * HOUR for n in range(200)}) > 190


@given(st.integers(0, 3 * HOUR), st.integers(0, 1_000), st.text(min_size=1))
def test_jitter_stays_before_the_next_tick(jitter_ms: int, n: int, name: str) -> None:
    tick = NOON + n * MINUTE
    due = due_at_ms(name.encode("utf-8", "replace").decode(), MINUTELY, TickPolicy(jitter_ms=jitter_ms), tick)
    assert tick <= due <= tick + min(jitter_ms, MINUTE - 1)


def test_a_tick_waits_for_its_jitter() -> None:
    policy = TickPolicy(jitter_ms=10 * MINUTE)
    due = due_at_ms("digest", HOURLY, policy, NOON)
    before = plan("digest", HOURLY, policy, NOON - HOUR, due - 1)
    assert before == Plan(wake_at_ms=due)
    then = plan("digest", HOURLY, policy, NOON - HOUR, due)
    assert [(firing.tick_at_ms, firing.due_at_ms) for firing in then.fire] == [(NOON, due)]
    assert then.wake_at_ms == due_at_ms("digest", HOURLY, policy, NOON + HOUR)


def test_a_tick_that_waits_for_its_jitter_does_not_hide_the_missed_one_before_it() -> None:
    policy = TickPolicy(jitter_ms=10 * MINUTE)
    due = due_at_ms("digest", HOURLY, policy, NOON)
    found = plan("digest", HOURLY, policy, NOON - 2 * HOUR, due - 1)
    assert ticks(found) == [NOON - HOUR]
    assert (found.decided_at_ms, found.wake_at_ms) == (NOON - HOUR, due)


# Every tick once

RULES: list[Rule] = [
    MINUTELY,
    EveryRule(7 * MINUTE, 123),
    CronRule("*/10 * * * *", "Europe/Berlin"),
    CronRule("30 2 * * *", "Europe/Berlin"),
    CronRule("0,20,40 1-3 * * *", "America/New_York"),
]


@given(
    st.sampled_from(RULES),
    st.sampled_from([1_774_656_000_000, 1_772_928_000_000, 1_792_800_000_000, 1_793_491_200_000]),  # clocks change
    st.integers(0, 20 * MINUTE),
    st.integers(0, 2**32),
)
def test_every_tick_fires_once_whoever_looks_and_whenever(rule: Rule, start: int, jitter_ms: int, seed: int) -> None:
    rng = random.Random(seed)
    policy = TickPolicy(catch_up=1_000, jitter_ms=jitter_ms)
    last, now, fired = start, start, []
    while now < start + 2 * DAY:
        skewed = now + rng.randint(-MINUTE, MINUTE)  # the next worker's clock
        found = plan("digest", rule, policy, last, skewed)
        fired += ticks(found)
        last = last if found.decided_at_ms is None else found.decided_at_ms
        now += rng.choice([1_000, MINUTE, HOUR, 5 * HOUR])
    assert fired == rule.between(start, last, 1_000_000)
    assert last >= (rule.latest(start, now - 5 * HOUR - 2 * MINUTE - 20 * MINUTE) or start)


@given(st.sampled_from(RULES), st.integers(0, 20 * MINUTE), st.integers(0, 3 * DAY))
def test_waking_when_told_finds_the_next_tick_on_time(rule: Rule, jitter_ms: int, shift: int) -> None:
    policy = TickPolicy(catch_up=0, jitter_ms=jitter_ms)
    last = 1_774_656_000_000 + shift
    wake = plan("digest", rule, policy, last, last).wake_at_ms
    assert wake is not None
    assert wake > last
    assert plan("digest", rule, policy, last, wake - 1) == Plan(wake_at_ms=wake)
    assert ticks(plan("digest", rule, policy, last, wake)) == [rule.after(last)]


# Names of ticks


def test_a_tick_has_one_name_everywhere() -> None:
    assert tick_id("digest", NOON) == "digest@2024-10-04T12:00:00.000Z"
    assert UUID(bytes=tick_job("digest", NOON)) == UUID("01925766-ae00-7f2f-b0f9-b2ebb87dd267")


@given(st.integers(0, 2**48 - 1), st.text(min_size=1, max_size=20).filter(str.isprintable))
def test_the_job_of_a_tick_has_an_id_like_any_other(tick: int, name: str) -> None:
    id = UUID(bytes=tick_job(name, tick))
    assert (id.version, id.variant) == (7, "specified in RFC 4122")
    assert id.int >> 80 == tick
    assert tick_job(name, tick) == tick_job(name, tick)
    assert tick_job(name, tick) != tick_job(name + "x", tick)
    assert tick_job(name, tick) != tick_job(name, tick ^ 1)


def test_what_fires_carries_its_names() -> None:
    firing = planned(HOURLY, NOON - HOUR, NOON).fire[0]
    assert (firing.id, firing.job) == (tick_id("digest", NOON), tick_job("digest", NOON))
