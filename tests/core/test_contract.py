"""Contracts: what does not fit is said in words, nothing is fetched, and no schema makes a check go on and on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.tasks.contract import TOO_MUCH, check_schema, faults
from limpet.core.tasks.pattern import most_chars

REPORT = {
    "type": "object",
    "required": ["decision", "files"],
    "properties": {
        "decision": {"enum": ["ship", "hold"]},
        "files": {"type": "array", "items": {"$ref": "#/$defs/file"}, "uniqueItems": True},
        "risk": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
    "$defs": {"file": {"type": "object", "required": ["path"], "properties": {"path": {"pattern": "^[a-z/]+$"}}}},
}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"decision": "ship", "files": []}, []),
        ({}, ["decision is missing", "files is missing"]),
        (None, ["the value is null, which is not of type object"]),
        ({"decision": "yes", "files": []}, ['decision is "yes", not one of "ship", "hold"']),
        ({"decision": "ship", "files": [{}]}, ["files[0].path is missing"]),
        ({"decision": "ship", "files": [{"path": "A"}]}, ["files[0].path does not match '^[a-z/]+$'"]),
        ({"decision": "ship", "files": [{"path": "a"}, {"path": "a"}]}, ["files has an item twice"]),
        ({"decision": "ship", "files": [], "risk": -1}, ["risk is -1, which breaks minimum 0"]),
        ({"decision": "ship", "files": [], "rsk": 1}, ["rsk is not known"]),
    ],
)
def test_a_fault_names_the_place_and_the_value(value: Any, words: list[str]) -> None:
    check_schema(REPORT, "result")
    assert faults(value, REPORT) == words


def test_of_many_faults_the_first_are_named() -> None:
    schema = {"required": [f"k{n}" for n in range(9)]}
    assert faults({}, schema) == [*(f"k{n} is missing" for n in range(5)), "and more"]


def test_what_is_not_known_yet_fits_but_what_is_missing_is_missed() -> None:
    schema = {"required": ["url", "who"], "properties": {"url": {"type": "string"}}}

    def is_open(value: Any) -> bool:
        return bool(value == {"$job": 0})

    assert faults({"url": {"$job": 0}, "who": 1}, schema, open_at=is_open) == []
    assert faults({"url": {"$job": 0}}, schema, open_at=is_open) == ["who is missing"]
    assert faults({"url": 5, "who": {"$job": 0}}, schema, open_at=is_open) == ["url is 5, which is not of type string"]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("text", "not a JSON Schema"),
        ({"type": "strin"}, "type: 'strin' is not valid"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "2020-12"),
        ({"$ref": "https://example.com/schema.json"}, "not in it"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "not in it"),
        ({"$id": "https://example.com"}, "uses"),
        ({"$ref": "#"}, "refers to itself without an end"),
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, "time has no bound"),
        ({"patternProperties": {"(a|a)*b": True}}, "time has no bound"),
        ({"title": "x" * 70_000}, "bytes"),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused_when_it_is_registered(schema: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        check_schema(schema, "result")


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"items": deep}
    with pytest.raises(InvalidOption, match="deeper than 64"):
        check_schema(deep, "result")


def test_references_that_double_at_each_level_end_soon() -> None:
    levels: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"$defs": {**levels, "d40": True}, "$ref": "#/$defs/d0"}
    with pytest.raises(InvalidOption, match="steps"):
        check_schema(schema, "result")
    assert faults(1, schema) == [TOO_MUCH]


def test_a_tree_may_refer_to_itself() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"kids": {"items": {"$ref": "#/$defs/t"}}}}}}
    check_schema(tree, "result")
    value: Any = {}
    for _ in range(400):
        value = {"kids": [value]}
    with pytest.raises(InvalidOption, match="nested too deeply"):
        faults(value, tree)


@pytest.mark.parametrize(
    "pattern", ["^[a-z]+$", r"^\d{4}-\d{2}$", "^v[0-9]+\\.[0-9]+$", "a?b*", "[](+*]+", "(ab)?c", "(ab){3}"]
)
def test_a_plain_pattern_is_let_through(pattern: str) -> None:
    assert most_chars(pattern) > 200


@pytest.mark.parametrize(
    "pattern", ["(a*)*", "(a|b)+", "(a?){50}", "(?=a+)b", r"(a)\1", "(?:a{1,9}){1,9}", "(", "x" * 501]
)
def test_a_pattern_without_a_bound_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOption):
        most_chars(pattern)


@pytest.mark.parametrize("pattern", ["a*a*a*$", "^.*.*=.*$", "[a-z]+[a-z]+[0-9]", "a*b"])
def test_the_longest_text_for_a_pattern_is_tried_in_a_second(pattern: str) -> None:
    began_s = time.process_time()
    faults("a" * min(most_chars(pattern), 262_144), {"pattern": pattern})
    assert time.process_time() - began_s < 5  # a pattern without a bound takes hours
