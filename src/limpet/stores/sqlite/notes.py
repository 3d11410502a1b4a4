"""Keeps the events that are signalled to jobs, what jobs wait for, and wakes those that wait for one."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.core.jobs.lease import MAX_EVENTS, MAX_EVENTS_BYTES, Signal
from limpet.stores.base import SignalAnswer
from limpet.stores.sqlite import lanes
from limpet.stores.sqlite.tx import NOTES, READY, SCHEDULED, SUCCEEDED, Tx

ALL_STEPS = "*"


def is_signalled(tx: Tx, id: bytes, events: Sequence[str]) -> bool:
    """Whether one of these events has been signalled to a job."""
    return any(tx.row("event_known", (id, event)) is not None for event in events)


def wait_for(tx: Tx, id: bytes, events: Sequence[str], due_ms: int) -> None:
    """A job waits for these events until it is due, and no longer for others."""
    tx.run("waiting_end", (id,))
    tx.many("note_put", [(id, "waiting", event, _due(due_ms)) for event in events])


def signal(tx: Tx, signals: Sequence[Signal]) -> list[SignalAnswer]:
    """Keep each event for its job, the first of a name; a job that waits for it becomes ready."""
    waits = {
        id: (state, lane_id, due_ms) for id, state, lane_id, due_ms in tx.rows_in("waits", [s.id for s in signals])
    }
    answers: list[SignalAnswer] = []
    for each in signals:
        if each.id not in waits:
            answers.append("gone")
            continue
        state, lane_id, due_ms = waits[each.id]
        if state >= SUCCEEDED:
            answers.append("finished")
        elif tx.row("event_known", (each.id, each.event)) is not None:
            answers.append("already")
        elif not _put_event(tx, each):
            answers.append("full")
        elif state == SCHEDULED and tx.row("waiting_for", (each.id, each.event, _due(due_ms))) is not None:
            _wake(tx, each.id, lane_id)
            answers.append("woken")
        else:
            tx.run("job_flag", (NOTES, each.id))
            answers.append("kept")
    return answers


def _put_event(tx: Tx, signal: Signal) -> bool:
    """Keep an event, unless its job has as many events, or bytes of them, as it may keep."""
    count, size = tx.row("events_kept", (signal.id,))
    if count >= MAX_EVENTS or size + len(signal.value) > MAX_EVENTS_BYTES:
        return False
    tx.run("event_put", (signal.id, signal.event, signal.value))
    return True


def _wake(tx: Tx, id: bytes, lane_id: int) -> None:
    tx.run("waiting_end", (id,))
    tx.run("job_now", (READY, tx.now_ms, id))
    tx.move(tx.lane(lane_id), SCHEDULED, READY)
    lanes.ready_again(tx, lane_id)


def _due(due_ms: int) -> bytes:
    """What a job that waits notes: a note of an earlier wait never equals when the job is due now."""
    return b"%d" % due_ms


def forget_steps(tx: Tx, id: bytes, names: Sequence[str]) -> None:
    """Recorded steps go, so that the next attempt runs them again."""
    if ALL_STEPS in names:
        tx.run("steps_forget", (id,))
    else:
        tx.many("step_forget", [(id, name) for name in names])
