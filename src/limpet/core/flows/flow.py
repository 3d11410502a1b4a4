"""Decides what a flow is: the order of its jobs, which of them count, how far it is, and what runs again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from limpet.core.endings.refusal import for_any_code
from limpet.core.errors import CycleFound, InvalidOption
from limpet.core.flows.refs import STANDS_FOR, stand_ins_of
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job, Unique
from limpet.core.jobs.meta import asked_bytes, with_meta
from limpet.core.jobs.state import FINISHED, LIVE, State
from limpet.core.jobs.view import JobView
from limpet.core.tasks.naming import did_you_mean

Node = TypeVar("Node", bound=Hashable)

MAX_WHY_CHARS: Final = 200  # of a reason that is told to thousands of dependents
_AGAIN: Final = "$again:"  # before the id of the job of which one with this unique key is a copy
_MAX_PATH: Final = 20  # nodes of a path that are named
_TOLD: Final = re.compile(r"\Aparent [-0-9a-f]{36} is \w+(: )?")


def because(parent: bytes, word: str, why: str = "") -> str:
    """Why a job will not run: what became of a parent of it. The same text on every engine: people search for it.

    >>> because(bytes(16), "is dead", "no such host")
    'parent 00000000-0000-0000-0000-000000000000 is dead: no such host'
    """
    return f"parent {id_text(parent)} {word}{f': {why[:MAX_WHY_CHARS]}' if why else ''}"


def root_cause(told: str) -> str:
    """The cause in what a job was told when a parent of it failed: its own dependents are told that one, not the way.

    >>> root_cause(because(bytes(16), "is dead", "no such host"))
    'no such host'
    """
    return _TOLD.sub("", told, count=1)


def arrows(path: Sequence[str]) -> str:
    """A path as people read it; of a very long one its beginning and its end.

    >>> arrows(["a", "b", "c"])
    'a → b → c'
    """
    left_out = len(path) - _MAX_PATH
    shown = path if left_out <= 0 else [*path[: _MAX_PATH // 2], f"{left_out:,} more", *path[-_MAX_PATH // 2 :]]
    return " → ".join(shown)


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
            f"these jobs wait for each other: {arrows(list(map(str, path)))}", fix="remove one of these dependencies"
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


# -- a job's place in its flow


class Mark(Struct, frozen=True, omit_defaults=True):
    """What a job says of its flow, in its meta: the flow's name, its own, of how many, and which run of it this is.

    Ends are the nodes that nothing in the flow waits for: whether it is one, of how many.
    """

    name: str
    node: str
    of: int
    run: int = 1
    end: bool = False
    ends: int = 1


class _Meta(Struct, frozen=True):
    flow: Mark


_decode_meta: Final = msgspec.json.Decoder(_Meta).decode


def mark_meta(mark: Mark) -> bytes:
    """What the meta of a job in a flow says of that."""
    return msgspec.json.encode(_Meta(mark))


def mark_of(meta: bytes) -> Mark | None:
    """The mark in a job's meta; None when there is none."""
    try:
        return _decode_meta(meta).flow if meta else None
    except msgspec.DecodeError:
        return None


# -- a flow as it is stored


class FlowNode(Struct, frozen=True, dict=True):
    """One node of a flow: the job that counts for it now."""

    name: str
    run: int  # from 1; larger when it was run again
    view: JobView
    end: bool = False  # nothing in the flow waits for it

    @cached_property
    def parents(self) -> tuple[bytes, ...]:
        """The jobs that it waits for, as they are stored: one may stand for the one that was named."""
        stand_ins = stand_ins_of(self.view.notes)
        return tuple(stand_ins.get(id, id) for id in self.view.after) if stand_ins else self.view.after


def only_waits(counts: Mapping[State, int]) -> bool:
    """True when all that is alive of a flow is blocked."""
    return bool(counts.get(State.blocked, 0)) and not any(counts.get(state, 0) for state in LIVE - {State.blocked})


def flow_state(counts: Mapping[State, int], *, goes_on: bool = False) -> State:
    """A flow in one word: running while anything can still go on by itself, then the worst end of a job.

    Jobs that are blocked while nothing else is alive wait for a person who looks at what has died; unless one of them
    waits for a job outside of the flow that is alive (`goes_on`).
    """
    if goes_on or any(counts.get(state, 0) for state in LIVE - {State.blocked}):
        return State.running
    for state in (State.dead, State.blocked, State.cancelled):
        if counts.get(state, 0):
            return state
    return State.succeeded


class FlowGraph:
    """All stored jobs of one flow. Where a node was run again only its last run counts."""

    goes_on = False  # all that is alive in it is blocked, and not by its own jobs alone: one outside is alive

    def __init__(self, id: bytes, views: Iterable[JobView]) -> None:
        self.id = id
        self.name, self.total, self.ends_in_all = "", 0, 0  # as its jobs say; zero ends: they do not
        self.past: list[FlowNode] = []  # earlier runs, as far as they are stored
        found: dict[str, FlowNode] = {}
        for view in sorted(views, key=lambda view: view.id):
            mark = mark_of(view.meta) or Mark("", f"{view.lane.task}-{id_text(view.id)[-4:]}", 0)
            self.name, self.total = self.name or mark.name, max(self.total, mark.of)
            self.ends_in_all = max(self.ends_in_all, mark.ends if mark.of else 0)
            node = FlowNode(mark.node, mark.run, view, mark.end)
            before = found.get(node.name)
            if before is None or before.run <= node.run:
                found[node.name] = node
            if before is not None:
                self.past.append(before if before.run <= node.run else node)
        self.nodes: Sequence[FlowNode] = tuple(found.values())
        self.total = max(self.total, len(self.nodes))
        self._by_name = found
        self._by_id = {node.view.id: node for node in self.nodes}

    @cached_property
    def counts(self) -> dict[State, int]:
        """The nodes by state."""
        return dict(Counter(node.view.state for node in self.nodes))

    @property
    def state(self) -> State:
        """The flow in one word."""
        return flow_state(self.counts, goes_on=self.goes_on)

    @property
    def outside(self) -> list[bytes]:
        """The jobs outside of the flow that its blocked ones named as parents, when nothing else in it is alive."""
        if not only_waits(self.counts):
            return []
        blocked = (node for node in self.nodes if node.view.state is State.blocked)
        return list(dict.fromkeys(id for node in blocked for id in node.parents if id not in self._by_id))

    @property
    def done(self) -> int:
        """How many of `total` have finished; what is stored no more has."""
        return self.total - sum(node.view.state in LIVE for node in self.nodes)

    @property
    def enqueued_at_ms(self) -> int:
        """When its first stored job was."""
        return min(node.view.enqueued_at_ms for node in (*self.nodes, *self.past))

    @cached_property
    def children(self) -> dict[str, list[FlowNode]]:
        """The nodes that wait for each node, by name."""
        found: dict[str, list[FlowNode]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for parent in self.parents(node):
                found[parent.name].append(node)
        return found

    def parents(self, node: FlowNode) -> list[FlowNode]:
        """The nodes of this flow that a node waits for; jobs of elsewhere are not among them."""
        return [self._by_id[id] for id in dict.fromkeys(node.parents) if id in self._by_id]

    def has(self, id: bytes) -> bool:
        """True for the job that counts for a node now."""
        return id in self._by_id

    @property
    def ends(self) -> list[FlowNode]:
        """The nodes that nothing in the flow waits for, as far as they are stored."""
        return [node for node in self.nodes if (node.end if self.ends_in_all else not self.children[node.name])]

    @property
    def missing_ends(self) -> int:
        """How many ends are not among its jobs: they were pruned, or are jobs that were there before it."""
        return max(0, self.ends_in_all - len(self.ends))

    def node(self, text: str) -> FlowNode:
        """The node with this name, or of the job with this id (or the end of one)."""
        text = text.strip().removeprefix("…")
        if text in self._by_name:
            return self._by_name[text]
        fitting = [node for node in self.nodes if len(text) >= 4 and id_text(node.view.id).endswith(text.lower())]
        if len(fitting) == 1:
            return fitting[0]
        raise InvalidOption(
            f"flow {id_text(self.id)} has no node {text!r}", fix=did_you_mean(text, [node.name for node in self.nodes])
        )

    def below(self, nodes: Iterable[FlowNode]) -> list[FlowNode]:
        """These nodes and all that depend on them, in the order of the flow."""
        found: set[str] = set()
        left = [node.name for node in nodes]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(child.name for child in self.children[name])
        return [node for node in self.nodes if node.name in found]


# -- running a part of it again


def refuse_in_vain(graph: FlowGraph, again: Sequence[FlowNode]) -> None:
    """Refuse to run nodes again that would be cancelled at once, because a parent that stays has failed."""
    names = {node.name for node in again}
    for node in again:
        for parent in graph.parents(node) if node.view.if_parent_fails == "cancel" else ():
            if parent.name not in names and parent.view.state in FINISHED - {State.succeeded}:
                raise InvalidOption(
                    f"{node.name} waits for {parent.name} too, which is {parent.view.state.value}",
                    fix=f"run {parent.name} again as well",
                )


def rerun(graph: FlowGraph, again: Sequence[FlowNode], new_id: Callable[[], bytes], now_ms: int) -> list[Job]:
    """New jobs for these nodes. They wait for each other's new ones, and get the results of parents that stay.

    What was to begin at an instant that is yet to come begins then.
    """
    ids = {node.view.id: new_id() for node in again}
    return [_copy(graph, node, ids, now_ms) for node in again]


def _has_begun(view: JobView) -> bool:
    """True when it is due for another reason than that it was enqueued for then: it is to be tried again, or sleeps."""
    return bool(view.attempt or view.lost or view.held) or any(note.kind != STANDS_FOR for note in view.notes)


def is_key_of_copy(key: str) -> bool:
    """True for a unique key that was made for the copy of a node, not given by a user."""
    return key.startswith(_AGAIN)


def _key_of_copy(view: JobView) -> Unique:
    """The job's own key, or one that only another copy of it has: of two people who ask at once, one has it run again.

    A job that succeeded may hold its own for some time yet, and would stand for its copy.
    """
    own = view.unique if view.unique is not None and not is_key_of_copy(view.unique) else None
    return Unique(f"{_AGAIN}{id_text(view.id)}" if own is None or view.state is State.succeeded else own)


def _copy(graph: FlowGraph, node: FlowNode, ids: Mapping[bytes, bytes], now_ms: int) -> Job:
    view = node.view
    mark = Mark(graph.name, node.name, graph.total, node.run + 1, node.end, graph.ends_in_all or 1)
    return Job(
        ids[view.id],
        for_any_code(view.lane),
        view.policy,
        view.args,
        due_at_ms=view.due_at_ms if view.due_at_ms > now_ms and not _has_begun(view) else None,
        expires_ms=None if view.expires_at_ms is None or _has_begun(view) else view.expires_at_ms - view.enqueued_at_ms,
        unique=_key_of_copy(view),
        after=tuple(ids.get(parent, parent) for parent in node.parents),
        if_parent_fails=view.if_parent_fails,
        cost=view.cost,
        costs=view.costs,
        tags=view.tags,
        meta=with_meta(mark_meta(mark), asked_bytes(view.meta)),
        flow=graph.id,
    )
