"""Remembers dependencies: releases dependents, cancels them with their parent, revives them with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from limpet.core.endings.transition import Failure
from limpet.core.flows.flow import because, root_cause
from limpet.core.flows.refs import stands_for
from limpet.core.jobs.job import Job, Lane
from limpet.stores.sqlite import lanes, unique
from limpet.stores.sqlite.tx import (
    BLOCKED,
    BY_PARENT,
    CANCELLED,
    DEAD,
    EVER_CANCELLED,
    KIDS,
    NOTES,
    READY,
    SCHEDULED,
    SUCCEEDED,
    WATCHED,
    Tx,
)

MAX_CAUSES = 10_000
FAN_OUT = 256  # children that one step releases: the rest follow with the next claims
CANCEL_CHILD, RUN_CHILD, WAIT_CHILD = 0, 1, 2
_WORDS: Final = {DEAD: "is dead", CANCELLED: "is cancelled"}


class Dep(NamedTuple):
    """A dependency as it is stored when the child is enqueued."""

    row: tuple[object, ...]
    waits: int
    cancelled: str = ""  # why the child must not run, when its parent has failed already
    revivable: bool = False  # a replay of that parent, or of one above it, brings it back


def dep_at_enqueue(tx: Tx, job: Job, parent: bytes, state: int, mode: int) -> Dep:
    """What the state of the parent means for a child that is enqueued now."""
    if state == SUCCEEDED:
        result = tx.row("result", (parent,))
        return Dep((job.id, parent, mode, 1, None if result is None else result[0], None), 0)
    if state in (DEAD, CANCELLED):
        cause, by_parent = _end_of(tx, parent)
        why = because(parent, _WORDS[state], cause)
        if mode == RUN_CHILD:
            return Dep((job.id, parent, mode, 1, None, why), 0)
        # A child that shall be cancelled waits for its parent in name, so that a replay can revive it: of a dead
        # parent, or of the dead one above that has taken the parent down.
        doom = why if mode == CANCEL_CHILD else ""
        return Dep((job.id, parent, mode, 0, None, None), 1, doom, state == DEAD or by_parent)
    return Dep((job.id, parent, mode, 0, None, None), 1)


def flag_inputs(tx: Tx, child: bytes) -> None:
    """Let claim know that there are inputs to read."""
    tx.run("job_flag_inputs", (child,))


def note_stand_ins(tx: Tx, child: bytes, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Note which jobs stand for parents that the child names: its arguments refer to those."""
    if pairs:
        tx.many("note_put", [(child, *stands_for(*pair)) for pair in pairs])
        tx.run("job_flag", (NOTES, child))


def parent_succeeded(tx: Tx, parent: bytes, result: bytes | None) -> None:
    """Hand the result on; children that waited for nothing else become ready or scheduled."""
    children = [child for (child,) in tx.rows("some_children", (parent, FAN_OUT))]
    tx.many("dep_done", [(result, child, parent) for child in children])
    release(tx, children)
    if len(children) == FAN_OUT:
        tx.run("fan_put", (parent,))


def fan_out(tx: Tx) -> bool:
    """Release the next children of a parent that has very many; True when there may be more."""
    row = tx.row("fan_next")
    if row is None:
        return False
    parent, state = row
    tx.run("fan_done", (parent,))
    if state == SUCCEEDED:  # one that is tried again meanwhile releases them when it succeeds
        result = tx.row("result", (parent,))
        parent_succeeded(tx, parent, None if result is None else result[0])
    return True


def parent_failed(tx: Tx, parent: bytes, state: int) -> None:
    """The parent is dead or cancelled: each child goes by its own mode, and so on down the graph."""
    _cancel_below(tx, parent, state)


def _end_of(tx: Tx, id: bytes) -> tuple[str, bool]:
    """Why a job failed, as its dependents are told, and whether the death of a parent was the reason."""
    reason, flags = tx.row("job_reason", (id,)) or ("", 0)
    by_parent = bool(flags & BY_PARENT)
    return root_cause(reason) if by_parent else reason or "", by_parent


def _cancel_below(tx: Tx, root: bytes, state: int) -> None:
    released, revivable, (root_why, _) = [], state == DEAD, _end_of(tx, root)
    stack = [(root, state)]
    while stack:
        parent, state = stack.pop()
        why = because(parent, _WORDS[state], root_why)
        for child, mode in tx.rows("open_children", (parent,)):
            if mode == RUN_CHILD:
                tx.run("dep_failed", (why, child, parent))
                released.append(child)
            elif mode == CANCEL_CHILD and (flags := _cancel_one(tx, child, why)) is not None:
                if revivable:
                    tx.run("job_flag", (BY_PARENT, child))
                if flags & KIDS:
                    stack.append((child, CANCELLED))
    release(tx, released)


def doom(tx: Tx, child: bytes, why: str, *, revivable: bool) -> None:
    """Cancel a child whose parent had failed before it came; a replay of a dead parent revives it."""
    if cancel_waiting(tx, child, why) and revivable:
        tx.run("job_flag", (BY_PARENT, child))


def release(tx: Tx, children: Sequence[bytes]) -> None:
    """Those that wait for no parent any more go on."""
    once = list(dict.fromkeys(children))  # a child of several failed parents comes several times
    for id, lane_id, due_ms in tx.rows_in("released", once):
        state = SCHEDULED if due_ms > tx.now_ms else READY
        tx.run("job_released", (state, id))
        tx.move(tx.lane(lane_id), BLOCKED, state)
        if state == READY:
            lanes.ready_again(tx, lane_id)
        else:
            tx.note_timer(lane_id, due_ms)


def cancel_waiting(tx: Tx, id: bytes, reason: str) -> bool:
    """Cancel a waiting job and, level by level, all that depend on it; False when it does not wait."""
    flags = _cancel_one(tx, id, reason)
    if flags is None:
        return False
    if flags & KIDS:
        _cancel_below(tx, id, CANCELLED)
    return True


def _cancel_one(tx: Tx, id: bytes, reason: str) -> int | None:
    row = tx.row("job_cancel_waiting", (id,))
    if row is None:
        return None
    state, lane_id, flags, packed = row
    tx.run("job_cancelled", (reason, tx.now_ms, id))
    tx.move(tx.lane(lane_id), state, CANCELLED)
    tx.end(id)
    if state == READY:
        lanes.leave_line(tx, tx.lane(lane_id), packed)
    if flags & WATCHED:
        tx.tell_finished([id])
    return int(flags)


def bury_waiting(tx: Tx, id: bytes, failure: Failure) -> None:
    """A stored record that cannot be read goes to the dead letters with its bytes."""
    row = tx.row("job_cancel_waiting", (id,))
    if row is None:
        return
    state, lane_id, flags, _ = row
    lane = tx.lane(lane_id)
    cause = count_dead(tx, id, lane, failure)
    tx.run("job_buried", (failure.message, cause, failure.type, tx.now_ms, id))
    tx.run("attempt_add", (id, id, 0, "dead", tx.now_ms, tx.now_ms, "", *failure_row(failure)))
    tx.move(lane, state, DEAD)
    tx.end(id)
    after_end(tx, id, flags, DEAD)


def after_end(tx: Tx, id: bytes, flags: int, state: int, result: bytes | None = None) -> None:
    """What everyone who waits for this job must hear."""
    if flags & KIDS:
        if state == SUCCEEDED:
            parent_succeeded(tx, id, result)
        else:
            parent_failed(tx, id, state)
    if flags & WATCHED:
        tx.tell_finished([id])


def cancel_children(tx: Tx, parent: bytes, reason: str) -> None:
    """Cancel the dependents of a job that was asked to stop, in the same step as the request."""
    why = because(parent, "was asked to stop", reason)
    for child, mode in tx.rows("open_children", (parent,)):
        if mode == CANCEL_CHILD:
            cancel_waiting(tx, child, why)


def revive_children(tx: Tx, root: bytes) -> None:
    """The parent is tried again: dependents that its death cancelled wait for it again."""
    stack = [root]
    while stack:
        for child, lane_id, packed in tx.rows("cancelled_children", (stack.pop(), BY_PARENT)):
            if tx.row("ended_parent", (child,)) is not None:
                continue  # another parent of it is dead or gone: it would wait for ever
            if not unique.reclaim(tx, child, tx.lane(lane_id), packed):
                continue  # another job has its key by now: it stays cancelled
            tx.run("job_revive_child", (~BY_PARENT, child))
            tx.move(tx.lane(lane_id), CANCELLED, BLOCKED)
            tx.tally(EVER_CANCELLED, -1)  # it is no longer one of those that were cancelled
            stack.append(child)


def orphan(tx: Tx, parent: bytes, *, released: bool) -> None:
    """The parent is removed for good: children that still wait for it never could run."""
    if released:
        while tx.row("some_children", (parent, 1)) is not None:
            result = tx.row("result", (parent,))
            parent_succeeded(tx, parent, None if result is None else result[0])
        return
    for child, _ in tx.rows("open_children", (parent,)):
        cancel_waiting(tx, child, because(parent, "was removed"))


def failure_row(failure: Failure) -> tuple[str, ...]:
    """The columns of an attempt that describe its error."""
    return (failure.kind, failure.type, failure.message, failure.traceback, failure.cause or failure.type)


def count_dead(tx: Tx, id: bytes, lane: Lane, failure: Failure) -> str:
    """One more dead job of its origin; the cause under which it is counted."""
    cause = failure.cause or failure.type
    if tx.row("cause_known", (cause, lane.queue, lane.task)) is None and tx.row("causes_full", (MAX_CAUSES,)):
        cause = failure.type  # too many origins to tell apart: the kind of error is still known
    tx.run("cause_add", (cause, lane.queue, lane.task, failure.type, failure.message, tx.now_ms, tx.now_ms, id))
    return cause


def unbury(tx: Tx, lane: Lane, cause: str) -> None:
    """One dead job less of this origin."""
    tx.run("cause_less", (cause, lane.queue, lane.task))
    tx.run("cause_clean", (cause, lane.queue, lane.task))
