"""What people and relays ask for: cancel, retry, and the batches of an outbox."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.core.endings.effect import FORCED
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.view import Control
from limpet.stores.base import MARK, CancelAnswer, RetryAnswer, RetryRequest
from limpet.stores.sqlite import graph, lanes, notes, unique
from limpet.stores.sqlite.controls import put_control
from limpet.stores.sqlite.effect import Running, apply_all
from limpet.stores.sqlite.enqueue import enqueue, put_args
from limpet.stores.sqlite.tx import DEAD, KIDS, READY, RUNNING, SCHEDULED, SUCCEEDED, Tx


def cancel(tx: Tx, ids: Sequence[bytes], reason: str, *, force: bool) -> list[CancelAnswer]:
    """Cancel each job with its dependents; a running one is asked to stop, or with `force` fenced off."""
    heads = {row[0]: Running(*row) for row in tx.rows_in("heads", list(ids))}
    answers: list[CancelAnswer] = []
    for id in ids:
        head = heads.get(id)
        if head is None:
            answers.append("gone")
        elif head.state == RUNNING:
            session = tx.row("session_of", (head.token,))
            if session is not None:
                tx.tell_cancel(session[0])
            if force:
                # Its lease is over at once: a late success of its holder is stale.
                (state,) = apply_all(tx, [head._replace(reason=reason)], "", FORCED)
                heads[id] = head._replace(state=state)  # it may be named twice
                answers.append("finished" if state == SUCCEEDED else "cancelled")
                continue
            tx.run("job_cancelling", (reason, id))
            if head.flags & KIDS:
                graph.cancel_children(tx, id, reason)
            answers.append("cancelling")
        elif graph.cancel_waiting(tx, id, reason):
            answers.append("cancelled")
        else:
            # Finished before, or taken down a moment ago with a parent named in the same call.
            answers.append("finished" if head.state >= SUCCEEDED else "cancelled")
    return answers


def retry(tx: Tx, request: RetryRequest) -> list[RetryAnswer]:
    """Dead jobs run again with fresh attempts; scheduled ones run now."""
    return [_retry_one(tx, id, request) for id in request.ids]


def _retry_one(tx: Tx, id: bytes, request: RetryRequest) -> RetryAnswer:
    row = tx.row("job_for_retry", (id,))
    if row is None:
        return "gone"
    state, lane_id, flags, cause, extra = row
    if state not in (DEAD, SCHEDULED):
        return "not_dead"
    lane = tx.lane(lane_id)
    if state == DEAD and not unique.reclaim(tx, id, lane, extra):
        return "unique_held"
    due_ms = tx.now_ms + request.delay_ms
    new = SCHEDULED if request.delay_ms > 0 else READY
    if request.args is not None:
        put_args(tx, id, request.args)
    if request.forget:
        notes.forget_steps(tx, id, request.forget)
    tx.run("job_again" if state == DEAD else "job_now", (new, due_ms, id))
    tx.move(lane, state, new)
    if state == DEAD:
        graph.unbury(tx, lane, cause)
    if new == READY:
        lanes.activate(tx, lane, 1)
    else:
        tx.note_timer(lane_id, due_ms)
    if state == DEAD and flags & KIDS:
        graph.revive_children(tx, id)
    return "retried"


def relay(
    tx: Tx, source: str, batch: int, jobs: Sequence[Job], rules: Sequence[GateRule], *, always: bool
) -> list[Enqueued] | None:
    """Enqueue the jobs of an outbox's batch and move its mark; None when the mark is there or further."""
    row = tx.row("control_value", (MARK, source))
    if row is not None and batch <= int(row[0]):
        return None
    answers = enqueue(tx, jobs, rules, always=always)
    put_control(tx, Control(MARK, source, b"%d" % batch), None)
    return answers
