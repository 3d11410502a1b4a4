"""Remembers which job holds an idempotency key; whether it still holds is read off the job itself."""

from __future__ import annotations

from limpet.core.jobs.job import Job, Lane, Unique
from limpet.core.jobs.state import STATES, State
from limpet.stores.packed import extra_or_none
from limpet.stores.sqlite.tx import Tx


def unique_key(lane: Lane, key: str) -> str:
    """Keys are scoped by task."""
    return f"{lane.task_scope}\x00{key}"


def hold(tx: Tx, job: Job) -> None:
    """The key is this job's from now on."""
    assert job.unique is not None
    until = None if job.unique.for_ms is None else tx.now_ms + job.unique.for_ms
    tx.run("unique_put", (unique_key(job.lane, job.unique.key), job.id, mask_of(job.unique), until))


def mask_of(unique: Unique) -> int:
    """The states in which a key is held, one bit each."""
    return sum(1 << each.code for each in unique.states)


def holder_of(tx: Tx, key: str) -> bytes | None:
    """The job that holds a key now: it is in one of the key's states, or its window is not over."""
    row = tx.row("unique_holder", (key,))
    if row is None:
        return None
    job, states, until_ms, state = row
    in_window = until_ms is not None and until_ms > tx.now_ms
    if state is None:  # pruned: only the window can hold
        return bytes(job) if in_window else None
    if states >> state & 1:
        return bytes(job)
    return bytes(job) if in_window and STATES[state] not in (State.dead, State.cancelled) else None


def reclaim(tx: Tx, id: bytes, lane: Lane, packed: bytes | None) -> bool:
    """A finished job is to live again: its key is its own again, unless another job holds it by now."""
    extra = extra_or_none(packed)
    if extra is None or extra.unique is None:
        return True
    key = unique_key(lane, extra.unique)
    holder = holder_of(tx, key)
    if holder is not None and holder != id:
        return False
    row = tx.row("unique_holder", (key,))
    if row is None or row[0] != id:  # another job had it in between: its states and window are not this one's
        tx.run("unique_put", (key, id, extra.unique_states, None))
    return True


def let_go(tx: Tx, id: bytes, lane: Lane, packed: bytes | None) -> None:
    """A job is erased: its key goes with it, once its window is over."""
    extra = extra_or_none(packed)
    if extra is not None and extra.unique is not None:
        key = unique_key(lane, extra.unique)
        if not tx.run("unique_drop", (key, id, tx.now_ms)):
            tx.run("unique_orphan", (key, id))
