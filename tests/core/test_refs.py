"""Results find their places: stored as places among the parents, filled with what those left."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import InvalidArguments, PayloadTooLarge
from limpet.core.flows.refs import MAX_INPUT_BYTES, Given, ParentFailed, Ref, Refers, Spread, filled, flat, placed
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed, Input, Note

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
LEFT = Given({A: Input(result=b'{"n":[1]}'), B: Input(failed="boom"), C: Input()}, (A, B, C))
RESULT = msgspec.Raw(b'{"n":[1]}')


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"$job": 0}, RESULT),
        ({"$job": 2}, msgspec.Raw(b"null")),
        ([1, {"$job": 0}], [1, RESULT]),
        ({"deep": {"er": [{"$job": 0}]}}, {"deep": {"er": [RESULT]}}),
        ({"$jobs": [0, 2]}, [RESULT, ParentFailed(id_text(B), "boom")]),
        ({"$jobs": [1, 1]}, []),
        ({"$job": id_text(A)}, RESULT),
        ("plain", "plain"),
        ({"$job": "not an id"}, {"$job": "not an id"}),
        ({"$job": id_text(b"d" * 16)}, {"$job": id_text(b"d" * 16)}),
        ({"$job": 0, "more": 1}, {"$job": 0, "more": 1}),
        ({"$job": True}, {"$job": True}),
        ({"$jobs": [0, 1, 2]}, {"$jobs": [0, 1, 2]}),
    ],
)
def test_what_parents_left_takes_the_place_of_references(value: Any, expected: Any) -> None:
    assert filled(value, LEFT) == expected


@pytest.mark.parametrize("value", [{"$job": 3}, {"$job": -1}, {"$jobs": [2, 4]}])
def test_a_place_where_no_parent_is_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments, match="of 3"):
        filled(value, LEFT)


class Group(Refers):
    """Several jobs as one argument."""

    def __init__(self, parts: Spread) -> None:
        self.parts = parts

    def spread(self) -> Spread:
        return self.parts


IDS = st.integers(0, 6).map(lambda number: number.to_bytes(16, "big"))
SPREADS: st.SearchStrategy[Any] = st.recursive(IDS, lambda part: st.lists(part, max_size=4), max_leaves=8)
VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | IDS.map(Ref) | SPREADS.map(Group),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=3), part, max_size=3),
    max_leaves=12,
)


def expected(value: Any) -> Any:
    """The value with the last byte of each parent's id as its result."""
    if isinstance(value, Refers):
        return expected(value.spread())
    if isinstance(value, bytes):
        return value[-1]
    if isinstance(value, dict):
        return {key: expected(item) for key, item in value.items()}
    return [expected(item) for item in value] if isinstance(value, list) else value


def references(value: Any) -> list[bytes]:
    if isinstance(value, Refers):
        return list(flat(value.spread()))
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [id for item in items for id in references(item)]


@given(VALUES, st.randoms())
def test_what_is_placed_is_filled_where_it_was(value: Any, chance: Any) -> None:
    parents = list(dict.fromkeys(references(value)))
    if chance.random() < 0.3:  # places need not follow the arguments
        chance.shuffle(parents)
    stored = msgspec.json.decode(msgspec.json.encode(placed(value, {id: n for n, id in enumerate(parents)})))
    left = Given({id: Input(result=str(id[-1]).encode()) for id in parents}, parents)
    assert msgspec.json.decode(msgspec.json.encode(filled(stored, left))) == expected(value)


def claimed(**more: Any) -> Claimed:
    return Claimed(b"j" * 16, 1, 1, 0, Lane("q", "t"), Policy(), b"{}", 0, 0, 0, **more)


def test_a_job_without_parents_is_given_nothing() -> None:
    assert Given.to(claimed()) is None


def test_the_result_of_a_job_that_stands_for_a_parent_is_the_parents() -> None:
    notes = (Note("stands_for", id_text(A), f'"{id_text(B)}"'.encode()), Note("step", "x", b"1"))
    job = claimed(after=(A, C), inputs={B: Input(result=b"1"), C: Input(failed="boom")}, notes=notes)
    left = Given.to(job)
    assert left is not None
    assert filled([{"$job": 0}, {"$job": id_text(A)}], left) == [msgspec.Raw(b"1")] * 2
    assert filled({"$job": 1}, left) == ParentFailed(id_text(C), "boom")


def test_two_parents_may_have_the_same_job_stand_for_them() -> None:
    notes = tuple(Note("stands_for", id_text(id), f'"{id_text(C)}"'.encode()) for id in (A, B))
    left = Given.to(claimed(after=(A, B), inputs={C: Input(result=b"1")}, notes=notes))
    assert left is not None
    assert filled({"$jobs": [0, 2]}, left) == [msgspec.Raw(b"1")] * 2


def test_results_that_are_too_much_together_are_refused() -> None:
    half = Input(result=b"1" * (MAX_INPUT_BYTES // 2))
    assert Given({A: half, B: half}, (A, B))
    with pytest.raises(PayloadTooLarge, match="2 parents are more than 16,777,216 bytes together"):
        Given({A: half, B: Input(result=b"1" * (MAX_INPUT_BYTES // 2 + 1))}, (A, B))


def test_results_that_an_engine_left_out_are_missed() -> None:
    with pytest.raises(PayloadTooLarge, match="store its result elsewhere"):
        Given({A: Input(result=b"1")}, (A, B))
