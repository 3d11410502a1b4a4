"""Decides how a flow looks as text: a tree in which each node stands once, below the last one it waits for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from limpet.cli.terminal import clean
from limpet.core.text.duration import text_of_ms

Node = dict[str, Any]  # as the operator API shapes it

FEW: Final = 5  # like nodes beside each other that are drawn one by one; of more, the first three
SHOWN: Final = 3
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WIDEST: Final = 48  # the column of names; a longer one pushes its line to the right


class Line(NamedTuple):
    """One line of the drawing."""

    branch: str  # what leads to it
    name: str
    state: str  # "" when it stands for several nodes
    words: str


def show(lines: Sequence[Line]) -> None:
    """Print the tree on stdout, names and states in columns."""
    width = min(WIDEST, max((len(line.branch) + len(line.name) for line in lines if line.state), default=0))
    for line in lines:
        head = f"{line.branch}{clean(line.name)}".ljust(width)
        words = clean(line.words)
        if not line.state:
            print(head.rstrip())
        elif sys.stdout.isatty():
            _coloured(head, line.state, words)
        else:
            print(f"{head}  {line.state:<9}  {words}".rstrip())


def _coloured(head: str, state: str, words: str) -> None:
    from rich.console import Console
    from rich.text import Text

    from limpet.cli.table import STYLES

    line = Text.assemble(f"{head}  ", (f"{state:<9}", STYLES.get(state, "")), f"  {words}")
    Console().print(line, soft_wrap=True)


def drawn(nodes: Sequence[Node], *, everything: bool = False) -> Iterator[Line]:
    """The lines of the tree; many like nodes beside each other are summed up unless `everything` is asked for."""
    below = _tree(nodes)
    likeness = _likeness(nodes, below)
    names = {node["id"]: node["node"] for node in nodes}
    stack = [(each, "", last) for each, last in _marked(_rows(below[None], likeness, everything))][::-1]
    while stack:
        row, indent, last = stack.pop()
        branch = f"{indent}{'└─ ' if last else '├─ '}"
        if isinstance(row, str):
            yield Line(branch, row, "", "")
            continue
        yield Line(branch, row["node"], row["state"], _words(row, names))
        further = indent + ("   " if last else "│  ")
        rows = _marked(_rows(below.get(row["node"], []), likeness, everything))
        stack.extend([(each, further, last) for each, last in rows][::-1])


def _tree(nodes: Sequence[Node]) -> dict[str | None, list[Node]]:
    """Node → the nodes drawn below it; None → the nodes without a parent in the flow."""
    depth: dict[str, int] = {}
    below: dict[str | None, list[Node]] = {None: []}
    left = {node["node"]: node for node in nodes}
    for node in _parents_first(left):
        # Below the deepest of its parents, and of those the last.
        parents = [name for name in node["after"] if name in left]
        chosen = max(reversed(parents), key=depth.__getitem__, default=None)
        depth[node["node"]] = 0 if chosen is None else depth[chosen] + 1
        below.setdefault(chosen, []).append(node)
    return below


def _parents_first(left: dict[str, Node]) -> Iterator[Node]:
    """In the order given, which a later run of a node may have upset."""
    done: set[str] = set()
    for name in left:
        stack = [name]
        while stack:
            node = left[stack[-1]]
            open_parents = [parent for parent in node["after"] if parent in left and parent not in done]
            if stack[-1] in done:
                stack.pop()
            elif open_parents:
                stack.extend(reversed(open_parents))
            else:
                done.add(stack.pop())
                yield node


def _rows(nodes: list[Node], likeness: dict[str, int], everything: bool) -> Iterator[Node | str]:
    """The nodes of one place; of many that are alike, with all that is below them, three and how many more."""
    for _, each in groupby(nodes, lambda node: likeness[node["node"]]):
        like = list(each)
        if everything or len(like) <= FEW:
            yield from like
        else:
            yield from like[:SHOWN]
            yield f"… {len(like) - SHOWN:,} more of {like[0]['task']} like these, {like[0]['state']}"


def _likeness(nodes: Sequence[Node], below: dict[str | None, list[Node]]) -> dict[str, int]:
    """The same number for nodes that are alike: task, state, how many they wait for, and what is drawn below them."""
    found: dict[str, int] = {}
    numbers: dict[tuple[object, ...], int] = {}
    for node in reversed(list(_parents_first({node["node"]: node for node in nodes}))):
        under = tuple(found[child["node"]] for child in below.get(node["node"], ()))
        kind = node["task"], node["state"], len(node["after"]), node["reason"], under
        found[node["node"]] = numbers.setdefault(kind, len(numbers))
    return found


def _marked(rows: Iterator[Node | str]) -> list[tuple[Node | str, bool]]:
    found = list(rows)
    return [(row, index == len(found) - 1) for index, row in enumerate(found)]


def _words(node: Node, names: dict[str, str]) -> str:
    """What there is to say of a node beside its name and state; its parents are called by their names."""
    words = []
    if node["took_s"] is not None:
        words.append(text_of_ms(round(node["took_s"] * 1000)))
    if node["attempt"] > 1:
        words.append(f"attempt {node['attempt']}")
    if node["run"] > 1:
        words.append(f"run {node['run']}")
    if len(node["after"]) > 1:
        more = len(node["after"]) - SHOWN
        words.append(f"after {', '.join(node['after'][:SHOWN])}{f' and {more:,} more' if more > 0 else ''}")
    if node["after_jobs"]:
        words.append(f"after job {', '.join(node['after_jobs'][:SHOWN])}")
    if node["error"] or node["reason"]:
        said = ": ".join(text for text in (node["error"], node["reason"]) if text)
        words.append(_ID.sub(lambda found: names.get(found[0], found[0]), said))
    return "; ".join(words)
