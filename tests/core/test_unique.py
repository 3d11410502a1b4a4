"""The same request has the same key in every process; different requests have different ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidOption, NotSerialisable
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.unique import content_key, unique_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


@dataclass
class Order:
    b: int
    a: int


@given(OBJECTS)
def test_the_order_of_keys_does_not_matter(values: dict[str, Any]) -> None:
    backwards = dict(reversed(values.items()))
    assert content_key("t", values) == content_key("t", backwards)
    assert content_key("t", values) == content_key("t", msgspec.json.encode(backwards))


@given(OBJECTS, OBJECTS)
def test_different_arguments_have_different_keys(one: dict[str, Any], two: dict[str, Any]) -> None:
    same = msgspec.json.encode(one, order="sorted") == msgspec.json.encode(two, order="sorted")
    assert (content_key("t", one) == content_key("t", two)) == same


def test_the_task_is_part_of_the_key() -> None:
    assert content_key("a", {"x": 1}) != content_key("b", {"x": 1})
    assert content_key("ab", {}) != content_key("a", {"b": 1})


def test_a_record_and_its_json_are_the_same_content() -> None:
    assert content_key("t", {"o": Order(1, 2)}) == content_key("t", {"o": {"a": 2, "b": 1}})


def test_the_key_is_the_same_in_every_process() -> None:
    values = "{'tags': {'x', 'y', 'z', 'w'}, 'n': 1}"
    code = f"from limpet.core.jobs.unique import content_key; print(content_key('t', {values}))"
    made = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }
    assert made == {content_key("t", {"n": 1, "tags": {"w", "x", "y", "z"}})}


def test_the_key_stays_what_stored_jobs_say() -> None:
    assert content_key("email.send", {"customer": "acme", "to": "a@b.c"}) == (
        "4c52d4ebc5ac1a8fa09b3298637ec8f436253081580380b600c4d31a0e658ef1"
    )


def test_options() -> None:
    values = {"order": 7}
    assert unique_of(None, task="t", values=values) is None
    assert unique_of(False, task="t", values=values) is None
    assert unique_of("welcome:42", task="t", values=values) == Unique("welcome:42", None, LIVE, "existing")
    assert unique_of(lambda args: f"o:{args['order']}", task="t", values=values) == Unique("o:7")
    assert unique_of(True, task="t", values=values) == Unique(content_key("t", values))
    states = frozenset({State.ready})
    assert unique_of("k", task="t", values=values, for_ms=5, states=states, on_duplicate="replace") == Unique(
        "k", 5, states, "replace"
    )


@pytest.mark.parametrize("option", ["", "x" * 513, lambda args: None, lambda args: 7, lambda args: ""])
def test_what_is_no_key_is_refused(option: Any) -> None:
    with pytest.raises(InvalidOption, match=r"unique key of 'email'"):
        unique_of(option, task="email", values={})


def test_content_without_a_stored_form_has_no_key() -> None:
    with pytest.raises(NotSerialisable, match="a is a object"):
        content_key("t", {"a": object()})


@pytest.mark.parametrize("key", ["caf\udce9", "a\0b"])
def test_a_key_that_no_engine_can_keep_is_refused(key: str) -> None:
    with pytest.raises(InvalidOption, match="whole characters"):
        unique_of(key, task="t", values={})
    with pytest.raises(InvalidOption, match="whole characters"):
        unique_of(lambda values: key, task="t", values={})
