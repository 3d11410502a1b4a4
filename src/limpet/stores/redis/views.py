"""Builds the views of jobs that people see from what is stored about them."""

from __future__ import annotations

from typing import Final

import msgspec

from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import JobView
from limpet.stores.packed import UNREADABLE
from limpet.stores.redis.fields import BODY, CANCELLING, HOLD
from limpet.stores.redis.record import (
    COMMON,
    HEAD_BYTES,
    SPOILT,
    Lanes,
    Policies,
    due_of,
    head_of,
    parts_of,
)

NOWHERE: Final = Lane("", "")  # the lane of a record that names none
_hold_of: Final = HOLD.reader("token", "claimed").unpack_from


class Parts(msgspec.Struct, frozen=True):
    """Everything that is stored about one job, as lua/views.lua answers it."""

    raw: bytes
    run: bytes | None = None  # the job's entry among the running ones
    session: bytes | None = None
    args: bytes | None = None  # when they lie beside the record
    result: bytes | None = None
    notes: tuple[Note, ...] = ()
    after: tuple[bytes, ...] = ()  # when they lie beside the record


def hold_of(run: bytes) -> tuple[int, int]:
    """(token, instant of the claim) of a running job."""
    a, b, c, d, e = _hold_of(run)
    return a << 48 | b << 32 | c, d << 32 | e


def view_of(id: bytes, parts: Parts, lanes: Lanes, policies: Policies) -> JobView | None:
    """One job, whole; None when its record is none. A spoilt part shows itself as the tag "undecodable"."""
    head = head_of(parts.raw)
    if head is None:
        return None
    try:
        rare, extra, at = parts_of(parts.raw, head.flags)
    except SPOILT:
        rare, extra, at = COMMON, UNREADABLE, HEAD_BYTES
    state, attempt = STATES[head.state], head.attempt
    token: int | None = None
    claimed_ms = head.claimed_ms
    if parts.run is not None:
        state, attempt = State.running, attempt + 1
        token, claimed_ms = hold_of(parts.run)
    return JobView(
        id=id,
        state=state,
        lane=lanes.get(head.lane, NOWHERE),
        policy=policies.get(head.policy) or Policy(),
        args=(parts.args or b"") if head.flags & BODY else parts.raw[at:-1],
        attempt=attempt,
        lost=head.lost,
        enqueued_at_ms=head.enqueued_ms,
        due_at_ms=due_of(head.due_ms),
        claimed_at_ms=claimed_ms or None,
        finished_at_ms=head.finished_ms or None,
        expires_at_ms=rare.expires_ms,
        token=token,
        session=None if parts.session is None else parts.session.decode(),
        cancel_requested=bool(head.flags & CANCELLING),
        reason=rare.reason,
        cause=rare.cause,
        error_type=rare.error_type,
        result=parts.result if state is State.succeeded else None,
        tags=extra.tags,
        meta=extra.meta,
        cost=extra.cost,
        costs=extra.costs,
        flow=extra.flow,
        unique=extra.unique,
        after=parts.after,
        if_parent_fails=extra.if_parent_fails,  # type: ignore[arg-type]  # stored words are the literal's
        held=head.held,
        notes=parts.notes,
    )
