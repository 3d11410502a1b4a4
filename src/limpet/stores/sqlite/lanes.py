"""Remembers which lanes can be served: idle, active (in the index that claim reads), or waiting at a gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from limpet.core.gate import stop_waiting
from limpet.core.jobs.job import Lane
from limpet.stores.packed import extra_or_none
from limpet.stores.sqlite.tx import KNOWN_LANES, READY, SCHEDULED, Tx

PROMOTE = 512  # due jobs that one claim moves to ready: bounds its length
GATES = 64  # due gates that one claim opens

_encode = msgspec.json.Encoder().encode


def remember(tx: Tx, lanes: Iterable[Lane]) -> None:
    """Store lanes that are not there yet."""
    for lane in lanes:
        if len(tx.known.lanes) < KNOWN_LANES:
            tx.known.lanes.setdefault(lane.id, lane)
        if tx.row("lane_state", (lane.id,)) is None:
            place = (lane.id, lane.kind, lane.member, lane.ring, lane.priority)
            names = (lane.queue, lane.task, lane.task_scope, lane.tenant)
            tx.run("lane_insert", (*place, *names, _encode(lane)))
            tx.many("lane_gate_insert", [(key, lane.id) for key in lane.lasting_gates])


def activate(tx: Tx, lane: Lane, count: int) -> None:
    """The lane has `count` more ready jobs; an idle one enters at the end of the round."""
    tx.ready[lane.id] += count
    if not tx.run("lane_activate", (tx.now_ms, lane.id)):
        return
    member_sits, ring_sits, turn = tx.row("seated", (lane.member, lane.ring))
    if not member_sits or turn is None:
        turn = tx.next_turn()
        _enter(tx, lane.member, turn, "" if lane.tenant is None else f"tenant:{lane.tenant}")
        if not ring_sits:
            _enter(tx, lane.ring, turn, f"queue:{lane.queue}")
    tx.take_seat(lane, turn)


def _enter(tx: Tx, id: int, turn: int, name: str) -> None:
    """A member or ring that had nothing active takes its place behind all who wait."""
    if not tx.run("turn_enter", (turn, id)):
        weight = weight_of(tx, name)
        tx.run("turn_put", (id, turn, weight, weight, name))


def rest(tx: Tx, lane: Lane) -> None:
    """The lane has no ready jobs."""
    tx.run("lane_idle", (lane.id,))
    leave_seat(tx, lane)


def park(tx: Tx, lane: Lane, gate: str) -> None:
    """The lane waits at a gate."""
    tx.run("lane_park", (gate, lane.id))
    leave_seat(tx, lane)


def leave_line(tx: Tx, lane: Lane, packed: bytes | None) -> None:
    """A ready job of the lane goes without having run: where a budget was shut for it, others may go on."""
    extra = extra_or_none(packed)
    if not lane.limited or extra is None:
        return
    keys = (*lane.class_gates, *lane.lane_gates)
    tx.load_gates(keys)
    for gate in filter(None, map(tx.gate, keys)):
        after = stop_waiting(gate, extra.cost_in(gate.rule.unit))
        if after is not gate:
            tx.put_gate(after)


def leave_seat(tx: Tx, lane: Lane) -> None:
    """A lane is no longer active; with the last of its kind its member gives up its place."""
    tx.run("seat_leave", (lane.kind, lane.priority, lane.member))


def weight_of(tx: Tx, name: str) -> int:
    """How many jobs a turn of this queue or tenant is worth."""
    if not name:
        return 1
    row = tx.row("control_value", ("weight", name))
    return max(1, int(msgspec.json.decode(row[0], type=int))) if row is not None else 1


def ready_again(tx: Tx, lane_id: int, count: int = 1) -> None:
    """Jobs of a stored lane became ready."""
    activate(tx, tx.lane(lane_id), count)


def promote(tx: Tx, most_urgent: int = 0) -> bool:
    """Move due jobs of this priority or less from scheduled to ready, urgent ones first; True when more are due than
    one step takes."""
    due = tx.rows("due_jobs", (most_urgent, tx.now_ms, PROMOTE))
    if not due:
        return False
    tx.many("job_promote", [(id,) for id, _ in due])
    for lane_id, count in _tally(due):
        lane = tx.lane(lane_id)
        tx.move(lane, SCHEDULED, READY, count)
        activate(tx, lane, count)
    return len(due) == PROMOTE


def _tally(rows: Sequence[tuple[bytes, int]]) -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    for _, lane_id in rows:
        counts[lane_id] = counts.get(lane_id, 0) + 1
    return list(counts.items())


def open_due_gates(tx: Tx) -> None:
    """Look at gates whose time has come: `finish` of this step wakes the lanes that wait there."""
    keys = [key for (key,) in tx.rows("due_gates", (tx.now_ms, GATES))]
    if keys:
        tx.load_gates(keys)
        tx.wake_lanes_now(keys)
