"""A small model of one flow: what each node should be, and what it should have been given, after each step.

It knows nodes and who waits for whom, nothing of queues, leases or engines. A node that is run again is a new
node in the place of the old one, as in a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from limpet import State

Mode = Literal["cancel", "run", "wait"]
Outcome = Literal["ok", "dead", "cancel"]

LIVE = (State.blocked, State.ready)
FAILED = "failed"  # what a node is given of a parent that failed


@dataclass(eq=False)
class Node:
    """One run of a node. `given` has an entry for each parent that is no longer waited for."""

    name: str
    queue: int
    mode: Mode
    passes: bool  # the results of parents are among its arguments
    parents: list[Node]
    state: State = State.blocked
    run: int = 1
    value: str | None = None
    given: dict[Node, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    revivable: bool = False  # cancelled by a death: a replay brings it back
    reason: str = ""

    @property
    def waits_for(self) -> list[Node]:
        return [parent for parent in self.parents if parent not in self.given]

    def below(self) -> set[Node]:
        """This node and all that depend on it, among the runs that count."""
        found, left = set[Node](), [self]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += node.children
        return found


class Model:
    """One flow as it should be stored."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.runs: dict[str, int] = {}  # how often each has been run by a worker
        self.seen: dict[str, list[str]] = {}  # what each was given the last time
        self.outcomes: dict[str, Outcome] = {}

    def add(self, name: str, queue: int, mode: Mode, passes: bool, parents: Iterable[str], outcome: Outcome) -> None:
        """A node as it is asked for."""
        node = Node(name, queue, mode, passes, [self.nodes[parent] for parent in parents])
        self.nodes[name], self.runs[name], self.outcomes[name] = node, 0, outcome
        for parent in node.parents:
            parent.children.append(node)
        node.state = State.blocked if node.parents else State.ready

    # -- what happens

    def work(self, queues: Iterable[int]) -> None:
        """Workers of these queues run until nothing is left for them."""
        served = set(queues)
        while ready := [n for n in self.nodes.values() if n.state is State.ready and n.queue in served]:
            self._run(ready[0])

    def _run(self, node: Node) -> None:
        self.runs[node.name] += 1
        self.seen[node.name] = [node.given[parent] for parent in node.parents] if node.passes else []
        match self.outcomes[node.name]:
            case "ok":
                node.state, node.value = State.succeeded, f"{node.name}:{self.runs[node.name]}"
                for child in node.children:
                    self._give(child, node, node.value)
            case "dead":
                node.state, node.reason = State.dead, "told to die"
                self._failed(node, revivable=True)
            case "cancel":
                node.state, node.reason = State.cancelled, "told to stop"
                self._failed(node, revivable=False)

    def _give(self, child: Node, parent: Node, what: str) -> None:
        if parent not in child.given:
            child.given[parent] = what
            if child.state is State.blocked and not child.waits_for:
                child.state = State.ready

    def _failed(self, node: Node, *, revivable: bool) -> None:
        for child in node.children:
            if node in child.given:
                continue
            if child.mode == "run":
                self._give(child, node, FAILED)
            elif child.mode == "cancel" and child.state is State.blocked:
                child.state, child.revivable, child.reason = State.cancelled, revivable, "parent"
                self._failed(child, revivable=revivable)

    def cancel(self, name: str, reason: str) -> str:
        """Someone cancels one job; what is answered."""
        node = self.nodes[name]
        if node.state not in LIVE:
            return "finished"
        node.state, node.reason = State.cancelled, reason
        self._failed(node, revivable=False)
        return "cancelled"

    def cancel_all(self, reason: str) -> int:
        """Someone cancels the flow; how many that were."""
        live = [node for node in self.nodes.values() if node.state in LIVE]
        for node in live:
            node.state, node.reason = State.cancelled, reason
        return len(live)

    def retry(self) -> int:
        """Someone has what died run again; how many that were."""
        dead = [node for node in self.nodes.values() if node.state is State.dead]
        for node in dead:
            node.state, node.reason = State.ready, ""
            self._revive(node)
        return len(dead)

    def _revive(self, node: Node) -> None:
        for child in node.children:
            waits = node not in child.given and child.state is State.cancelled and child.revivable
            if waits and all(parent.state in LIVE for parent in child.waits_for):
                child.state, child.revivable, child.reason = State.blocked, False, ""
                self._revive(child)

    def may_run_again(self, name: str) -> bool:
        """False when a parent that stays has failed, and would take a node with it."""
        again = self.nodes[name].below()
        return not any(
            node.mode == "cancel" and parent not in again and parent.state in (State.dead, State.cancelled)
            for node in again
            for parent in node.parents
        )

    def run_again(self, name: str) -> int:
        """Someone has a node and all below it run again; how many nodes that were."""
        again = self.nodes[name].below()
        for old in again:
            for parent in old.parents:
                parent.children.remove(old)
        for old in [node for node in self.nodes.values() if node in again]:  # in the order of the flow: parents first
            parents = [self.nodes[parent.name] for parent in old.parents]
            node = Node(old.name, old.queue, old.mode, old.passes, parents, run=old.run + 1)
            self.nodes[old.name] = node
            for parent in parents:
                parent.children.append(node)
                if parent.state is State.succeeded:
                    node.given[parent] = parent.value or ""
                elif parent.state in (State.dead, State.cancelled) and node.mode == "run":
                    node.given[parent] = FAILED
            node.state = State.blocked if node.waits_for else State.ready
        return len(again)

    # -- what should be seen

    @property
    def state(self) -> State:
        states = {node.state for node in self.nodes.values()}
        if State.ready in states:
            return State.running
        return next((s for s in (State.dead, State.blocked, State.cancelled) if s in states), State.succeeded)

    def states(self) -> Mapping[str, str]:
        return {name: node.state.value for name, node in self.nodes.items()}
