"""Decides what of a flow is public: in one line of a list, and whole with its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

from limpet.core.flows.flow import FlowGraph, FlowNode
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import IfParentFails
from limpet.core.jobs.state import STATES, State
from limpet.core.records.job import JobRecord
from limpet.core.records.record import Record, moment
from limpet.core.redaction.redaction import Redaction


class Line(Protocol):
    """A flow as it is stored, with all its jobs or without."""

    @property
    def id(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def counts(self) -> Mapping[State, int]: ...
    @property
    def enqueued_at_ms(self) -> int: ...


class FlowRecord(Record, frozen=True, kw_only=True):
    """A flow at one instant. `state` is running while anything can go on by itself, then the worst end of a job."""

    id: str
    name: str | None
    state: State
    done: int  # nodes that have finished
    total: int
    counts: dict[State, int]  # nodes by state
    enqueued_at: datetime

    @property
    def progress(self) -> float:
        """How much has finished, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    @classmethod
    def of(cls, line: Line) -> FlowRecord:
        """The public face of a stored flow."""
        return FlowRecord(**_line(line))


class FlowPage(Record, frozen=True, kw_only=True):
    """One page of flows, newest first."""

    flows: tuple[FlowRecord, ...]
    cursor: str | None


class NodeRecord(Record, frozen=True, kw_only=True):
    """One node of a flow at one instant: its job, what it waits for, how long it took."""

    node: str  # its name
    id: str
    task: str
    queue: str
    state: State
    attempt: int
    run: int  # from 1; larger when the node was run again
    after: tuple[str, ...]  # the nodes it waits for
    after_jobs: tuple[str, ...]  # jobs outside of the flow that it waits for
    if_parent_fails: IfParentFails
    error: str | None  # the type of the last error
    reason: str | None  # its message, or why the job was cancelled
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    took_s: float | None

    @classmethod
    def of(cls, graph: FlowGraph, node: FlowNode, redaction: Redaction) -> NodeRecord:
        """The public face of a stored node."""
        view, job = node.view, JobRecord.of(redaction.job(node.view))
        inside = {parent.view.id: parent.name for parent in graph.parents(node)}
        started, ended = view.claimed_at_ms, view.finished_at_ms
        return cls(
            node=node.name,
            id=job.id,
            task=job.task,
            queue=job.queue,
            state=job.state,
            attempt=job.attempt,
            run=node.run,
            after=tuple(inside.values()),
            after_jobs=tuple(id_text(id) for id in dict.fromkeys(node.parents) if id not in inside),
            if_parent_fails=view.if_parent_fails,
            error=job.error,
            reason=job.reason,
            enqueued_at=job.enqueued_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            took_s=None if started is None or ended is None else max(0, ended - started) / 1000,
        )


class FlowDetail(FlowRecord, frozen=True, kw_only=True):
    """A flow with all its nodes, and with the earlier runs of nodes that were run again."""

    nodes: tuple[NodeRecord, ...]
    past: tuple[NodeRecord, ...]

    @classmethod
    def whole(cls, graph: FlowGraph, redaction: Redaction) -> FlowDetail:
        """The public face of a stored flow and of its nodes."""
        nodes, past = [
            tuple(NodeRecord.of(graph, node, redaction) for node in each) for each in (graph.nodes, graph.past)
        ]
        return cls(**_line(graph), nodes=nodes, past=past)


def _line(line: Line) -> dict[str, Any]:
    return {
        "id": id_text(line.id),
        "name": line.name or None,
        "state": line.state,
        "done": line.done,
        "total": line.total,
        "counts": {state: line.counts[state] for state in STATES if line.counts.get(state)},
        "enqueued_at": moment(line.enqueued_at_ms),
    }
