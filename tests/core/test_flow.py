"""Graphs of jobs are put in order or refused with the circle named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.errors import CycleFound
from limpet.core.flows.flow import order

GRAPHS = st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 12), max_size=4), max_size=10)


@given(GRAPHS)
def test_parents_come_first_or_a_real_circle_is_named(graph: dict[int, list[int]]) -> None:
    try:
        found = order(graph)
    except CycleFound as error:
        path = [int(node) for node in error.message.partition(": ")[2].split(" → ")]
        assert path[0] == path[-1]
        assert len(path) > 1
        for parent, child in pairwise(path):
            assert parent in graph[child]
        return
    assert sorted(found) == sorted(graph)
    place = {node: index for index, node in enumerate(found)}
    for node, parents in graph.items():
        for parent in parents:
            assert parent not in place or place[parent] < place[node]


@given(GRAPHS)
def test_an_acyclic_graph_is_never_refused(graph: dict[int, list[int]]) -> None:
    downwards = {node: [parent for parent in parents if parent < node] for node, parents in graph.items()}
    assert sorted(order(downwards)) == sorted(graph)


def test_jobs_without_parents_stay_as_given() -> None:
    assert order({"c": [], "a": [], "b": ["c"]}) == ["c", "a", "b"]


def test_a_long_chain_needs_no_deep_stack() -> None:
    graph = {node: [node - 1] for node in range(20_000)}
    assert order(graph) == list(range(20_000))


@pytest.mark.parametrize(
    ("graph", "path"),
    [
        ({"a": ["a"]}, "a → a"),
        ({"a": ["b"], "b": ["a"]}, "a → b → a"),
        ({"x": ["a"], "a": ["b"], "b": ["a"]}, "a → b → a"),
    ],
)
def test_the_circle_is_named(graph: dict[str, list[str]], path: str) -> None:
    with pytest.raises(CycleFound) as caught:
        order(graph)
    assert path in str(caught.value) or " → ".join(path.split(" → ")[::-1]) in str(caught.value)
