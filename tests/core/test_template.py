"""The keys of limits: what is filled in from the arguments, and what cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidArguments, InvalidTask
from limpet.core.tasks.template import Template


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
        ("{task}/{queue}/{tenant}", {"task": "t", "queue": "q", "tenant": "g"}, "t/q/g"),
        ("{{literal}}", {}, "{literal}"),
    ],
)
def test_a_template_reads_the_arguments(text: str, values: dict[str, Any], filled: str) -> None:
    assert Template(text).fill(values) == filled


@pytest.mark.parametrize(
    ("text", "constant"), [("smtp", True), ("x:{task}", True), ("{queue}", False), ("{tenant}", False), ("{a}", False)]
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
    Template("{customer}:{task}:{queue}:{tenant}").check(["customer"])


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
