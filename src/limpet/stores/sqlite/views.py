"""Shows stored jobs as people see them, one by one and all together; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from limpet.core.jobs.job import Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import AttemptView, CauseView, Counts, FlowView, Inspection, JobView
from limpet.stores.overview import AHEAD, counts_of, inspection_of, with_queues
from limpet.stores.packed import PLAIN, UNREADABLE, extra_or_none
from limpet.stores.sqlite import gates, sessions
from limpet.stores.sqlite.tx import CANCELLING, NOTES, Tx

COLUMNS: Final = """j.id, j.state, j.lane, j.attempt, j.lost, j.enqueued_ms, j.due_ms, j.claimed_ms, j.finished_ms,
j.expires_ms, j.token, j.flags, j.reason, j.cause, j.error_type, j.held, j.policy, coalesce(j.args, b.args), j.extra"""


def views(tx: Tx, ids: Sequence[bytes]) -> list[JobView | None]:
    """The jobs with these ids, whole."""
    found = {row[0]: row for row in tx.rows_in("views", list(ids))}
    return [view(tx, found[id]) if id in found else None for id in ids]


def view(tx: Tx, row: Any) -> JobView:
    """One job from its columns, with its result, notes and holder."""
    id, state_code, lane_id, attempt, lost, enqueued, due, claimed, finished, expires, token, flags = row[:12]
    reason, cause, error_type, held, policy_id, args, packed = row[12:]
    state = STATES[state_code]
    extra = PLAIN if packed is None else extra_or_none(packed) or UNREADABLE
    result = tx.row("result", (id,)) if state is State.succeeded else None
    session = tx.row("session_of", (token,)) if token is not None else None
    notes = tuple(Note(*note) for note in tx.rows("notes", (id,))) if flags & NOTES else ()
    return JobView(
        id=id,
        state=state,
        lane=tx.lane(lane_id),
        policy=_policy(tx, policy_id),
        args=args,
        attempt=attempt,
        lost=lost,
        enqueued_at_ms=enqueued,
        due_at_ms=due,
        claimed_at_ms=claimed,
        finished_at_ms=finished,
        expires_at_ms=expires,
        token=token,
        session=None if session is None else session[0],
        cancel_requested=bool(flags & CANCELLING),
        reason=reason or "",
        cause=cause or "",
        error_type=error_type or "",
        result=None if result is None else result[0],
        tags=extra.tags,
        meta=extra.meta,
        cost=extra.cost,
        flow=extra.flow,
        unique=extra.unique,
        after=extra.after,
        if_parent_fails=extra.if_parent_fails,  # type: ignore[arg-type]  # stored words are the literal's
        held=held,
        notes=notes,
        costs=extra.costs,
    )


def _policy(tx: Tx, policy_id: int) -> Policy:
    try:
        return tx.policy(policy_id)
    except (msgspec.DecodeError, TypeError):
        return Policy()


def attempts(tx: Tx, id: bytes) -> list[AttemptView]:
    """Every recorded attempt, oldest first."""
    return [AttemptView(*row) for row in tx.rows("attempts", (id,))]


def causes(tx: Tx, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    return [CauseView(*row) for row in tx.rows("causes", (queue, queue, limit))]


def count(tx: Tx) -> Counts:
    """All counters."""
    return counts_of(tx.rows("counts"))


def queues(tx: Tx) -> Counts:
    """All counters, and every queue by name."""
    oldest = {name: tx.row("oldest_ready", (name,))[0] for (name,) in tx.rows("queue_names")}
    return with_queues(count(tx), oldest, gates.gates(tx, "queue:"))


def flows(tx: Tx, ids: Sequence[bytes] | None, limit: int, before: bytes | None) -> list[FlowView]:
    """These flows, or the newest before one."""
    found = [_flow(tx, id) for id in (_newest_flows(tx, limit, before) if ids is None else ids)]
    return [flow for flow in found if flow is not None]


def _newest_flows(tx: Tx, limit: int, before: bytes | None) -> Iterator[bytes]:
    """A loose scan: one look at the index per flow, however many jobs each has."""
    row = tx.row("last_flow") if before is None else tx.row("flow_before", (before,))
    for _ in range(limit):
        if row[0] is None:
            return
        yield row[0]
        row = tx.row("flow_before", (row[0],))


def _flow(tx: Tx, id: bytes) -> FlowView | None:
    first, *counts = tx.row("flow_counts", (id,))
    if first is None:
        return None
    by_state = {state: count for state, count in zip(STATES, counts, strict=True) if count}
    return FlowView(id, by_state, tx.row("job_enqueued", (first,))[0])


def inspect(tx: Tx, id: bytes) -> Inspection | None:
    """All facts about a job."""
    job = views(tx, [id])[0]
    if job is None:
        return None
    lane = job.lane
    row = tx.row("lane_state", (lane.id,))
    return inspection_of(
        job,
        ("idle", "active", "waiting")[0 if row is None else row[0]],
        tx.row("ahead", (lane.id, job.due_at_ms, id, AHEAD))[0],
        [(parent, code) for parent, code in tx.rows("open_parents", (id,)) if code is not None],
        [gate for key in (*lane.class_gates, *lane.lane_gates) if (gate := tx.gate(key)) is not None],
        [each.serves for each in sessions.view(tx)],
        attempts(tx, id),
    )
