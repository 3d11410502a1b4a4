"""Retries are finite, their delays bounded, and what people write as a policy means what it says."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.endings.retry import FUNCTION_ATTEMPTS, JITTERS, Retry, delay_ms
from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Policy


def policy(retry: Retry) -> Policy:
    return Policy(**retry.policy_fields())


POLICIES = st.builds(
    lambda attempts, base, factor, cap, jitter: policy(Retry(attempts, base, factor, cap, jitter)),
    st.integers(1, 1_000),
    st.floats(0, 1_000),
    st.floats(1, 100),
    st.floats(0, 10_000),
    st.sampled_from(JITTERS),
)


def test_the_defaults_are_the_documented_ones() -> None:
    assert policy(Retry()) == Policy()
    assert Retry() == Retry(attempts=5, base=1, factor=4, cap=300, jitter="full")


@pytest.mark.parametrize(
    ("attempt", "ms"), [(1, 1_000), (2, 4_000), (3, 16_000), (4, 64_000), (5, 256_000), (6, 300_000)]
)
def test_delays_grow_by_the_factor_up_to_the_cap(attempt: int, ms: int) -> None:
    assert delay_ms(policy(Retry(jitter="none")), attempt, random.Random(1)) == ms


@given(POLICIES, st.integers(1, 5_000), st.integers(0, 2**32), st.none() | st.integers(0, 10**8))
def test_no_delay_is_below_zero_or_over_the_cap(rule: Policy, attempt: int, seed: int, previous: int | None) -> None:
    assert 0 <= delay_ms(rule, attempt, random.Random(seed), previous) <= rule.cap_ms


@given(st.integers(1, 10), st.integers(0, 2**32))
def test_each_jitter_keeps_its_range(attempt: int, seed: int) -> None:
    full = delay_ms(policy(Retry(jitter="none")), attempt, random.Random(seed))
    assert 0 <= delay_ms(policy(Retry(jitter="full")), attempt, random.Random(seed)) <= full
    assert full // 2 <= delay_ms(policy(Retry(jitter="equal")), attempt, random.Random(seed)) <= full
    drawn = delay_ms(policy(Retry(jitter="decorrelated")), attempt, random.Random(seed), previous_ms=2_000)
    assert 1_000 <= drawn <= 6_000


def test_full_jitter_spreads_over_the_whole_range() -> None:
    rng = random.Random(7)
    drawn = [delay_ms(policy(Retry()), 3, rng) for _ in range(500)]
    assert min(drawn) < 1_000
    assert max(drawn) > 15_000


def test_the_same_seed_gives_the_same_delays() -> None:
    assert delay_ms(Policy(), 4, random.Random(3)) == delay_ms(Policy(), 4, random.Random(3))


def test_a_list_is_meant_as_written() -> None:
    rule = policy(Retry.of([1, timedelta(seconds=10), "1m"]))
    assert rule.attempts == 4
    assert [delay_ms(rule, attempt, random.Random(0)) for attempt in (1, 2, 3, 9)] == [1_000, 10_000, 60_000, 60_000]


def never(attempt: int, error: BaseException) -> float | None:
    return None


@pytest.mark.parametrize(
    ("value", "retry"),
    [
        (None, Retry(attempts=1)),
        (1, Retry(attempts=1)),
        (7, Retry(attempts=7)),
        ([], Retry(attempts=1, jitter="none")),
        (Retry(attempts=2), Retry(attempts=2)),
        (never, Retry(attempts=FUNCTION_ATTEMPTS, function=never)),
    ],
)
def test_what_people_write(value: Any, retry: Retry) -> None:
    assert Retry.of(value) == retry


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"attempts": 0}, "attempts=0"),
        ({"attempts": -1}, "attempts=-1"),
        ({"attempts": True}, "attempts=True"),
        ({"attempts": 2.5}, "attempts=2.5"),
        ({"base": -1}, "base"),
        ({"cap": "soon"}, "cap"),
        ({"factor": 0.5}, "factor=0.5"),
        ({"factor": float("nan")}, "factor=nan"),
        ({"jitter": "some"}, "jitter='some'"),
        ({"delays": (1, -2)}, r"retry\[1\]"),
        ({"function": 3}, "function=3"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Retry(**wrong)


@pytest.mark.parametrize("value", ["3", 2.5, {"attempts": 3}, object()])
def test_what_is_no_policy_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match="retry="):
        Retry.of(value)
