"""Decides the order of jobs that wait for each other, and how a parent's result reaches its dependent."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.errors import CycleFound
from holdfast.core.ids import id_bytes, id_text
from holdfast.core.lease import Input

Node = TypeVar("Node", bound=Hashable)

REF: Final = "$job"  # {"$job": "<id>"} in stored arguments stands for that parent's result


class Ref:
    """An argument that is another job's result: known only when that job has succeeded."""

    __slots__ = ("id",)

    def __init__(self, id: bytes) -> None:
        self.id = id

    def __repr__(self) -> str:
        return f"Ref({id_text(self.id)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def stored(self) -> dict[str, str]:
        """Its form in stored arguments."""
        return {REF: id_text(self.id)}


class ParentFailed(Struct, frozen=True):
    """What a dependent gets instead of a result when it asked to run although its parent failed."""

    id: str
    reason: str


def fill_refs(value: Any, inputs: Mapping[bytes, Input]) -> tuple[Any, bool]:
    """Decoded JSON with every reference to one of `inputs` replaced; True when a failed parent is in it.

    Only ids among the job's own inputs are replaced, so arguments that merely look alike stay as they are.
    """
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get(REF), str):
            found = _input(value[REF], inputs)
            if found is not None:
                return found
        items = {key: fill_refs(item, inputs) for key, item in value.items()}
        return {key: item for key, (item, _) in items.items()}, any(failed for _, failed in items.values())
    if isinstance(value, list):
        filled = [fill_refs(item, inputs) for item in value]
        return [item for item, _ in filled], any(failed for _, failed in filled)
    return value, False


def _input(text: str, inputs: Mapping[bytes, Input]) -> tuple[Any, bool] | None:
    try:
        given = inputs.get(id_bytes(text))
    except ValueError:
        return None
    if given is None:
        return None
    if given.failed is not None:
        return ParentFailed(text, given.failed), True
    return (None if given.result is None else msgspec.json.decode(given.result)), False


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
