"""Decides the order of jobs that wait for each other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from holdfast.core.errors import CycleFound

Node = TypeVar("Node", bound=Hashable)


def order(parents: Mapping[Node, Iterable[Node]]) -> list[Node]:
    """The nodes with every parent before its dependents, otherwise as given. Raises CycleFound naming the path.

    Parents that are not nodes themselves (jobs stored earlier) put no one in order.

    >>> order({"b": ["a"], "a": []})
    ['a', 'b']
    """
    left = {node: [parent for parent in before if parent in parents] for node, before in parents.items()}
    children: dict[Node, list[Node]] = {node: [] for node in left}
    missing = dict.fromkeys(left, 0)
    for node, before in left.items():
        for parent in before:
            children[parent].append(node)
            missing[node] += 1
    ready = [node for node, count in missing.items() if not count]
    for node in ready:  # grows while it is walked
        for child in children[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    if len(ready) < len(left):
        done = set(ready)
        path = _cycle({node: before for node, before in left.items() if node not in done})
        raise CycleFound(
            f"these jobs wait for each other: {' → '.join(map(str, path))}", fix="remove one of these dependencies"
        )
    return ready


def _cycle(stuck: Mapping[Node, Iterable[Node]]) -> list[Node]:
    """A path back to its own start; every stuck node has a stuck parent, so walking upwards must meet itself."""
    node = next(iter(stuck))
    path: list[Node] = []
    seen: dict[Node, int] = {}
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = next(parent for parent in stuck[node] if parent in stuck)
    loop = [*path[seen[node] :], node]
    return loop[::-1]  # parents first, as people read arrows
