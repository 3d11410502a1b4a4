"""Limits and breakers become gates; templates read arguments and refuse names that are not there."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InvalidArguments, InvalidOption, InvalidTask
from holdfast.core.gate import BreakerRule, GateRule
from holdfast.core.limit import Breaker, Limit, Template, did_you_mean, parse_rate


class Plan(Enum):
    free = "free"


@dataclass
class Order:
    customer: str
    lines: list[int]
    plan: Plan = Plan.free


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("smtp", {}, "smtp"),
        ("customer:{customer}", {"customer": "acme"}, "customer:acme"),
        ("{a}-{b}", {"a": 1, "b": True}, "1-true"),
        ("{order.customer}", {"order": Order("acme", [])}, "acme"),
        ("{order.customer}", {"order": {"customer": "acme"}}, "acme"),
        ("{order.plan}", {"order": Order("acme", [])}, "free"),
        ("{order.lines[1]}", {"order": Order("acme", [7, 8])}, "8"),
        ("{row[name]}", {"row": {"name": "x"}}, "x"),
        ("{row[3]}", {"row": {3: "x"}}, "x"),
        ("{id}", {"id": UUID(int=5)}, str(UUID(int=5))),
        ("{price}", {"price": Decimal("1.50")}, "1.50"),
        ("{who}", {"who": None}, ""),
        ("{task}/{queue}/{group}", {"task": "t", "queue": "q", "group": "g"}, "t/q/g"),
        ("{{literal}}", {}, "{literal}"),
    ],
)
def test_a_template_reads_the_arguments(text: str, values: dict[str, Any], filled: str) -> None:
    assert Template(text).fill(values) == filled


@pytest.mark.parametrize(
    ("text", "constant"), [("smtp", True), ("x:{task}", True), ("{queue}", False), ("{group}", False), ("{a}", False)]
)
def test_a_template_is_constant_when_every_job_of_a_task_gets_the_same(text: str, constant: bool) -> None:
    assert Template(text).constant is constant


@pytest.mark.parametrize(
    "text", ["", "{", "}", "{}", "{0}", "{a b}", "{a!r}", "{a:>3}", "{a.}", "{a[]}", "{a.b()}", None]
)
def test_a_template_that_cannot_be_read_is_refused_at_once(text: Any) -> None:
    with pytest.raises(InvalidTask):
        Template(text)


def test_an_unknown_parameter_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidTask, match=r"'custmer'.*did you mean 'customer'"):
        Template("{custmer}").check(["customer", "to"])
    Template("{customer}:{task}:{queue}:{group}").check(["customer"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{customer}", {}),
        ("{order.customer}", {"order": 3}),
        ("{order.customer}", {"order": {}}),
        ("{rows[9]}", {"rows": [1]}),
        ("{rows[x]}", {"rows": [1]}),
        ("{order}", {"order": Order("a", [])}),
        ("{order}", {"order": {"a": 1}}),
        ("{name}", {"name": "x" * 257}),
    ],
)
def test_arguments_that_a_key_cannot_be_made_of_are_refused(text: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArguments, match=r"the key"):
        Template(text).fill(values)


@given(st.text(st.characters(exclude_characters="{}\0", exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_text_without_braces_is_its_own_key(text: str) -> None:
    assert Template(text).fill({}) == text


@pytest.mark.parametrize("value", ["\udcff", "a\0b"])
@pytest.mark.parametrize("text", ["{name}", "customer:{name}", "{name}:{name}"])
def test_a_key_that_no_engine_can_keep_is_refused(text: str, value: str) -> None:
    with pytest.raises(InvalidArguments, match="cannot be stored"):
        Template(text).fill({"name": value})


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
    "rate", ["", "10", "10/", "/s", "0/s", "-1/s", "1.5/s", "10/y", "10 per s", "2000000/s", 10, None]
)
def test_a_rate_that_cannot_be_read_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidOption, match="rate="):
        parse_rate(rate)


def test_a_limit_becomes_a_gate() -> None:
    assert Limit("c:{c}", rate="10/m").rule("c:acme") == GateRule("limit:c:acme", interval_us=6_000_000, burst=10)
    assert Limit("smtp", concurrency=20).rule("smtp") == GateRule("limit:smtp", concurrency=20)
    both = Limit("x", rate="10/s", burst=3, concurrency=2, learns=True).rule("x")
    assert both == GateRule("limit:x", concurrency=2, interval_us=100_000, burst=3, learns=True)


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
        {"name": "smtp:{host}"},
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
        ({"rate": "0/m"}, "rate='0/m' admits nobody"),
        ({"rate": "1/" + "9" * 400 + "d"}, "cannot be read"),
        ({"rate": "9" * 5_000 + "/s"}, "cannot be read"),
        ({"rate": "1/m", "burst": 10**12}, "burst=.*limits nothing"),
        ({"concurrency": 10**30}, "concurrency=.*limits nothing"),
        ({"rate": "1/366d", "burst": 1_000_000}, "millennia"),
    ],
)
def test_numbers_that_no_engine_can_count_in_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Limit("key", **options)


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
        ({"rate": "10/s", "adaptive": "5/m"}, "a hundred times"),
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
