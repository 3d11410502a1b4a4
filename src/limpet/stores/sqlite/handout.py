"""The rows of ready jobs, and the records that claim hands out for them."""

from __future__ import annotations

from typing import NamedTuple

from limpet.core.flows.refs import MAX_INPUT_BYTES
from limpet.core.jobs.lease import Claimed, Input, Note
from limpet.stores.packed import Extra
from limpet.stores.sqlite.tx import INPUTS, NOTES, Tx

NO_INPUTS: dict[bytes, Input] = {}


class Row(NamedTuple):
    """A ready job, as the lane index and its body give it."""

    due_ms: int
    id: bytes
    attempt: int
    lost: int
    flags: int
    enqueued_ms: int
    expires_ms: int | None
    held: int
    held_since_ms: int | None
    lane: int
    policy: int
    args: bytes
    extra: bytes | None


def claimed(tx: Tx, row: Row, token: int, extra: Extra, probe: bool, together: int) -> Claimed:
    """The job under its lease, with what its parents and earlier attempts left for it."""
    inputs: dict[bytes, Input] = NO_INPUTS
    notes: tuple[Note, ...] = ()
    if row.flags & INPUTS:
        found = tx.rows("inputs", (row.id, MAX_INPUT_BYTES))
        inputs = {parent: Input(result, failed) for parent, result, failed in found}
    if row.flags & NOTES:
        notes = tuple(Note(*each) for each in tx.rows("notes_handed_out", (row.id,)))
    return Claimed(
        row.id,
        token,
        row.attempt + 1,
        row.lost,
        tx.lane(row.lane),
        tx.policy(row.policy),
        row.args,
        row.enqueued_ms,
        row.due_ms,
        tx.now_ms,
        row.held,
        row.held_since_ms,
        extra.cost,
        extra.tags,
        extra.meta,
        extra.flow,
        probe,
        inputs,
        notes,
        extra.after,
        extra.costs,
        together,
    )
