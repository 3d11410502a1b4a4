"""Removes jobs that are over, every trace of them but their ids, and what else has outlived its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limpet.core.gate import is_blank
from limpet.core.jobs.retention import LOOKED_AT, WALK, Walk, Walked, walks
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Retention
from limpet.stores.sqlite import graph, lanes, unique
from limpet.stores.sqlite.controls import put_control
from limpet.stores.sqlite.tx import DEAD, DISCARDED, KIDS, SUCCEEDED, Tx, gate_or_shut

REMEMBER_MS = 600_000  # an enqueue repeated this long after its job is gone is still the same job
RECEIPT_MS = 3_600_000
GATES, GATES_AT_ONCE = "gates", 1_000  # the walk over gates, and how many of them one step looks at


def discard(tx: Tx, ids: Sequence[bytes]) -> int:
    """Remove dead jobs for good."""
    gone = 0
    for id in ids:
        row = tx.row("job_for_retry", (id,))
        if row is None or row[0] != DEAD:
            continue
        lane = tx.lane(row[1])
        graph.unbury(tx, lane, row[3])
        tx.move(lane, DEAD, None)
        tx.tally(DISCARDED)
        _erase(tx, [(id, row[1], DEAD, row[4], tx.now_ms, row[2])])
        gone += 1
    return gone


def _erase(tx: Tx, rows: Sequence[tuple[bytes, int, int, bytes | None, int, int]]) -> None:
    """Delete every trace of finished jobs but their ids."""
    for row in rows:
        if row[5] & KIDS:
            graph.orphan(tx, row[0], released=row[2] == SUCCEEDED)
    ids = [(row[0],) for row in rows]
    for name in (
        "erase_job",
        "erase_body",
        "erase_result",
        "erase_notes",
        "erase_attempts",
        "erase_deps",
        "erase_watch",
    ):
        tx.many(name, ids)
    remember = [(id, state, until) for id, _, state, _, at, _ in rows if (until := at + REMEMBER_MS) > tx.now_ms]
    tx.many("gone_put", remember)
    for id, lane_id, _, extra, _, _ in rows:
        tx.lane_jobs[lane_id] -= 1
        unique.let_go(tx, id, tx.lane(lane_id), extra)


def prune(tx: Tx, retention: Retention, limit: int) -> int:
    """Remove what has outlived its time, `limit` rows at most."""
    removed, looked_at_all = 0, True
    for state in (State.succeeded, State.cancelled, State.dead):
        keep_ms, queues = retention.of(state)
        if not queues:
            if keep_ms is not None and removed < limit:
                removed += _erase_old(
                    tx, state.code, tx.rows("outlived", (state.code, tx.now_ms - keep_ms, limit - removed))
                )
            continue
        for walk in walks(state, keep_ms, queues):
            gone, ended = _walk(tx, walk, max(0, limit - removed))
            removed, looked_at_all = removed + gone, looked_at_all and ended
    removed += _prune_rest(tx, retention, max(0, limit - removed))
    return removed if looked_at_all else max(1, removed)


def _erase_old(tx: Tx, state: int, rows: list[Any]) -> int:
    if state == DEAD:
        return discard(tx, [row[0] for row in rows])
    _erase(tx, rows)
    for row in rows:
        tx.move(tx.lane(row[1]), state, None)
    return len(rows)


def _walk(tx: Tx, walk: Walk, limit: int) -> tuple[int, bool]:
    """Go on where the last walk stopped, over jobs that stay too; how many went, and whether it came to its end."""
    row = tx.row("control_value", (WALK, walk.name))
    at = Walked.read(None if row is None else row[0], tx.now_ms)
    until_ms, most = tx.now_ms - walk.keep_ms, LOOKED_AT * limit
    rows = tx.rows("outlived_from", (walk.state.code, at.at_ms, at.at_ms, at.id, until_ms, most)) if limit else []
    old: list[Any] = []
    passed = at
    for found in rows:
        if len(old) == limit:
            break
        passed = at.passed(found[4], found[0])
        if walk.concerns(tx.lane(found[1]).queue):
            old.append(found)
    if passed != at:
        put_control(tx, Control(WALK, walk.name, passed.written()), None)
    ended = bool(limit) and len(rows) < most and (not rows or rows[-1][0] == passed.id)
    return _erase_old(tx, walk.state.code, old), ended


def _prune_rest(tx: Tx, retention: Retention, limit: int) -> int:
    removed = tx.run("gone_old", (tx.now_ms, limit))
    removed += tx.run("unique_old", (tx.now_ms, limit))
    removed += tx.run("receipts_old", (tx.now_ms - RECEIPT_MS, limit))
    for log, keep_ms in (("audit", retention.audit_ms), ("event", retention.event_ms)):
        if keep_ms is not None:
            removed += tx.run("log_old", (log, limit, tx.now_ms - keep_ms))
    removed += tx.run("events_over", (retention.events, limit))
    for lane_id, member in tx.rows("empty_lanes", (limit,)):
        _drop_lane(tx, lane_id, member)
        removed += 1
    return removed + _forget_gates(tx, limit)


def _forget_gates(tx: Tx, limit: int) -> int:
    """Limits and breakers that rule no lane and remember nothing; some are looked at, and the next time others."""
    row = tx.row("control_value", (WALK, GATES))
    begin = at = "" if row is None else row[0].decode()
    removed = 0
    found = tx.rows("gates_from", (at, GATES_AT_ONCE)) if limit else []
    for key, body, in_use in found:
        if removed == limit:
            break
        at = key
        if not in_use and key.startswith(("limit:", "breaker:")) and is_blank(gate_or_shut(key, body), tx.now_ms):
            removed += tx.run("gate_drop", (key,))
    if limit and len(found) < GATES_AT_ONCE and removed < limit:
        at = ""  # that was the last: begin again
    if at != begin:
        put_control(tx, Control(WALK, GATES, at.encode()), None)
    return removed


def _drop_lane(tx: Tx, lane_id: int, member: int) -> None:
    lane = tx.lane(lane_id)
    for key in (*lane.class_gates[3:], *lane.lane_gates):
        tx.touch_gate(key)  # the lane may have been woken for a free place: the next one that waits gets it
    tx.run("lane_gates_drop", (lane_id,))
    tx.run("lane_drop", (lane_id,))
    lanes.leave_seat(tx, lane)
    tx.run("seat_other_lane", (lane.kind, lane.priority, lane.member, lane_id))
    tx.run("turn_drop", (member, member))
    tx.known.lanes.pop(lane_id, None)
