"""Budgets and buckets become gates of their own, and pushback holds neither."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Lane
from limpet.core.limits.budget import Budget, base_of, first_limit
from limpet.core.limits.limit import Limit
from limpet.core.limits.unit import Cost
from limpet.core.tasks.template import Template


def test_a_budget_becomes_one_gate_for_each_unit() -> None:
    budget = Budget("llm:{team}", usd=Decimal("0.5"), tokens=1_000, cost=9, per="week")
    assert set(budget.rules("llm:acme")) == {
        GateRule("limit:usd/week:llm:acme", unit="usd", cap=500_000, period="week"),
        GateRule("limit:tokens/week:llm:acme", unit="tokens", cap=1_000, period="week"),
        GateRule("limit:cost/week:llm:acme", unit="", cap=9, period="week"),
    }


def test_a_limit_becomes_its_own_gate_and_one_for_each_bucket() -> None:
    limit = Limit(
        "openai:{model}", rate="500/m", concurrency=8, learns=True, buckets={"tokens": "60000/m", "usd": "5/h"}
    )
    base, words, money = limit.rules("openai:gpt")
    assert base == GateRule("limit:openai:gpt", 8, 120_000, 500, default_for_429=True)
    assert words == GateRule("limit:tokens:openai:gpt", interval_us=1_000, burst=60_000, unit="tokens")
    assert money == GateRule("limit:usd:openai:gpt", interval_us=720, burst=5_000_000, unit="usd")


def test_a_limit_of_buckets_alone_has_a_gate_that_pushback_can_hold() -> None:
    assert Limit("k", buckets={"tokens": "60/s"}).rules("k")[0] == GateRule("limit:k")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, r"Budget\('k'\) caps nothing"),
        ({"usd": 0}, r"Budget\('k'\): usd must be a positive number, got 0"),
        ({"usd": -1}, r"usd must be an amount of usd, got -1"),
        ({"tokens": 1.5}, r"tokens must be a whole amount of tokens, got 1.5"),
        ({"usd": 1, "per": "fortnight"}, r"per='fortnight'\) is unknown"),
        ({"usd": 1, "per": "days"}, r"did you mean 'day'"),
        ({"usd": 1, "over": "drop"}, r"over='drop'\) is unknown"),
        ({"usd": 10**12}, r"must be an amount of usd, got"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Budget("k", **options)


@pytest.mark.parametrize(
    ("buckets", "says"),
    [
        ({"token": "5/m"}, r"counts 'token'"),
        ({"requests": "5/m"}, r"each job is one request"),
        ({"cost": "5/m"}, r"is the limit's own rate"),
        ({"tokens": "many"}, r"tokens='many' cannot be read"),
        ({"tokens": 5}, r"tokens=5 cannot be read"),
        ({"tokens": "1.5/m"}, r"only dollars have fractions"),
        ({"tokens": "1/0s"}, r"tokens='1/0s' cannot be read"),
        ({"tokens": "0/s"}, r"tokens='0/s': the number must be ≥ 1"),
        ({"tokens": "1/d"}, r"use a Budget"),
        ({"usd": "0.01/d"}, r"use a Budget"),
        ({"tokens": "40000000/m"}, r"use 30,000,000 tokens or 60,000,000 tokens"),
        (["tokens"], r"names no units"),
    ],
)
def test_a_bucket_that_makes_no_sense_is_refused(buckets: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Limit("k", buckets=buckets)


def test_a_job_that_can_never_fit_is_told_the_numbers() -> None:
    budget = Budget("llm", usd=0.4)
    assert budget.too_dear(Cost(1, {"usd": 400_000})) == ""
    assert budget.too_dear(Cost(1, {"usd": 500_000})).startswith("it needs $0.50, and Budget('llm') is $0.40 a day")


@pytest.mark.parametrize(
    ("limits", "keys", "first"),
    [
        ((), (), None),
        (("usd/day:llm",), (), None),
        (("usd/day:llm", "smtp"), (), "smtp"),
        (("openai", "tokens:openai"), (), "openai"),
        ((), ("usd/day:t", "openai:gpt", "tokens:openai:gpt"), "openai:gpt"),
        ((), ("tokens:gpt",), "tokens:gpt"),  # a limit that somebody called so
        (("cost/hour:x",), ("a",), "a"),
    ],
)
def test_pushback_holds_the_first_limit_and_never_a_bucket_or_a_budget(
    limits: tuple[str, ...], keys: tuple[str, ...], first: str | None
) -> None:
    assert first_limit(Lane("q", "t", limits=limits, keys=keys)) == first


def test_what_a_key_stands_for() -> None:
    assert base_of("usd/day:llm:acme") == ("usd", "day", "llm:acme")
    assert base_of("input_tokens:openai") == ("input_tokens", "", "openai")
    for plain in ("customer:acme", "usd", "usd/day", "usd/never:x", "cost:x", "eur/day:x"):
        assert base_of(plain) == ("", "", plain)


@pytest.mark.parametrize(
    ("template", "text", "made"),
    [
        ("smtp", "smtp", True),
        ("smtp", "smtp2", False),
        ("llm:{team}", "llm:a.b", True),
        ("a{x}b", "a.b.b", True),
        ("llm:{t}", "l", False),
    ],
)
def test_a_template_knows_what_it_could_have_made(template: str, text: str, made: bool) -> None:
    assert Template(template).made(text) is made
