"""Limits and breakers become gates, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.gate import MOST, BreakerRule, Gate, GateRule, charge, tokens
from limpet.core.limits.limit import Breaker, Limit
from limpet.core.tasks.naming import did_you_mean


def test_a_limit_becomes_a_gate() -> None:
    assert Limit("c:{c}", rate="10/m").rule("c:acme") == GateRule("limit:c:acme", interval_us=6_000_000, burst=10)
    assert Limit("smtp", concurrency=20).rule("smtp") == GateRule("limit:smtp", concurrency=20)
    both = Limit("x", rate="10/s", burst=3, concurrency=2, learns=True).rule("x")
    assert both == GateRule("limit:x", concurrency=2, interval_us=100_000, burst=3, default_for_429=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"burst": 5},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"rate": "10/s", "burst": 0},
        {"rate": "fast"},
    ],
)
def test_a_limit_that_limits_nothing_or_everything_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Limit("k", **wrong)


def test_a_breaker_becomes_a_gate_named_after_its_task() -> None:
    assert Breaker().rule("email.send") == GateRule("breaker:email.send", breaker=BreakerRule())
    rule = Breaker("stripe", failures=3, within="5m", cooldown=30, probe_after=5, rate=0.5, min_calls=10).rule("t")
    assert rule.key == "breaker:stripe"
    assert rule.breaker == BreakerRule(3, 300_000, 30_000, 5_000, 0.5, 10)


def test_the_first_probe_comes_after_the_cooldown_unless_told() -> None:
    rule = Breaker(cooldown=7).rule("t").breaker
    assert rule is not None
    assert rule.probe_after_ms == 7_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"failures": True},
        {"min_calls": 0},
        {"rate": 0},
        {"rate": 1.5},
        {"rate": "0.5"},
        {"rate": float("nan")},
        {"cooldown": -1},
        {"within": "x"},
        {"within": 0},
        {"failures": 1_001},
        {"min_calls": 1_000_001},
        {"name": ""},
        {"name": 5},
        {"name": "x" * 300},
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=r"Breaker"):
        Breaker(**wrong)


def test_suggestions_name_the_nearest_or_all() -> None:
    assert did_you_mean("prioritty", ["priority", "queue"]) == "did you mean 'priority'?"
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert did_you_mean("zzz", []) == "there are none"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": "1/1000d"}, "slower than one a year"),
        ({"rate": "0/m"}, "rate must admit 1 or more, got '0/m'"),
        ({"rate": "1/" + "9" * 400 + "d"}, "cannot be read"),
        ({"rate": "9" * 5_000 + "/s"}, "cannot be read"),
        ({"rate": "1/m", "burst": 10**12}, "burst=.*limits nothing"),
        ({"concurrency": 10**30}, "concurrency=.*limits nothing"),
        ({"rate": "1/366d", "burst": 1_000_000}, "more than a century"),
        ({"rate": "1/366d", "burst": 143}, "more than a century"),
        ({"rate": f"{(1 << 40) + 1}/{1 << 41}ms"}, "more go at once than can be counted"),
        ({"buckets": {"tokens": "1000000000/100000d"}}, "more than a century"),
    ],
)
def test_numbers_that_no_engine_can_count_in_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Limit("key", **options)


def test_the_largest_bucket_that_is_not_refused_empties_before_counting_ends() -> None:
    rule = Limit("key", rate="1/366d", burst=142).rule("key")
    gate, _ = charge(Gate(rule), [1] * rule.burst, 1, 1_800_000_000_000)
    assert gate.full_at_us < MOST
    assert tokens(gate, 1_800_000_000_000) == 0


@pytest.mark.parametrize(
    ("limit", "floor"),
    [
        (Limit("k", rate="500/m"), None),
        (Limit("k", rate="500/m", adaptive=True), 100),
        (Limit("k", rate="500/m", adaptive="50/m"), 100),
        (Limit("k", rate="500/m", adaptive="500/m"), 1_000),
        (Limit("k", rate="10/s", adaptive="6/m"), 10),
        (Limit("k", concurrency=8, adaptive=True), 125),
        (Limit("k", concurrency=3, adaptive=True), 334),
    ],
    ids=str,
)
def test_how_slow_an_adaptive_limit_may_go(limit: Limit, floor: int | None) -> None:
    assert limit.rule("k").floor == floor


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"adaptive": True}, "no rate"),
        ({"concurrency": 5, "adaptive": "5/m"}, "no rate"),
        ({"rate": "10/m", "adaptive": "11/m"}, "11/m"),
        ({"rate": "10/s", "adaptive": "5/m"}, "from a hundredth of"),
        ({"rate": "10/s", "adaptive": "soon"}, "soon"),
        ({"rate": "10/s", "adaptive": 5}, "5"),
        ({"rate": "10/s", "adaptive": True, "climb": 0}, "climb"),
    ],
)
def test_a_limit_that_cannot_adapt_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidOption, match=word):
        Limit("k", **{"learns": True, **options})


def test_an_adaptive_limit_climbs_in_the_time_that_it_is_given() -> None:
    assert Limit("k", rate="1/s", adaptive=True, climb="5m").rule("k").climb_ms == 300_000
