"""Decides the public JSON form of flows: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from limpet.core.flows.flow import FlowGraph, FlowNode
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import STATES
from limpet.ops.flows import FlowLine
from limpet.ops.shape import Shape, error_of, when


def flow_line(line: FlowLine | FlowGraph) -> Shape:
    """A flow as one line of a list."""
    return {
        "id": id_text(line.id),
        "name": line.name or None,
        "state": line.state.value,
        "done": line.done,
        "total": line.total,
        "counts": {state.value: line.counts[state] for state in STATES if line.counts.get(state)},
        "enqueued_at": when(line.enqueued_at_ms),
    }


def flow_whole(graph: FlowGraph) -> Shape:
    """A flow with all its nodes, and with the earlier runs of nodes that were run again."""
    return {
        **flow_line(graph),
        "nodes": [node_shape(graph, node) for node in graph.nodes],
        "past": [node_shape(graph, node) for node in graph.past],
    }


def node_shape(graph: FlowGraph, node: FlowNode) -> Shape:
    """One node: its job, what it waits for, how long it took."""
    view = node.view
    error, reason, _ = error_of(view)
    inside = {parent.view.id: parent.name for parent in graph.parents(node)}
    started, ended = view.claimed_at_ms, view.finished_at_ms
    return {
        "node": node.name,
        "id": id_text(view.id),
        "task": view.lane.task,
        "queue": view.lane.queue,
        "state": view.state.value,
        "attempt": view.attempt,
        "run": node.run,
        "after": list(inside.values()),
        "after_jobs": [id_text(id) for id in dict.fromkeys(node.parents) if id not in inside],
        "if_parent_fails": view.if_parent_fails,
        "error": error or None,
        "reason": reason or None,
        "enqueued_at": when(view.enqueued_at_ms),
        "started_at": when(started),
        "finished_at": when(ended),
        "took_ms": None if started is None or ended is None else max(0, ended - started),
    }
