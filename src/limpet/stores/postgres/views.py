"""Builds the views of jobs that people see from what is stored about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Final, NamedTuple

from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import FINISHED, STATES, State
from limpet.core.jobs.view import JobView
from limpet.stores.codes import CANCELLING
from limpet.stores.packed import PLAIN, UNREADABLE, extra_or_none

NOWHERE: Final = Lane("", "")  # the lane of a job whose definition cannot be read
UNSAID: Final = Policy()


class Position(NamedTuple):
    """A place in an index: what orders it before the id, as far as anything does, and the id."""

    a: int
    b: int
    id: bytes


class JobRow(NamedTuple):
    """A row of lp.jobs_1, in its order."""

    id: bytes
    state: int
    lane: int
    policy: int
    args: bytes
    attempt: int
    lost: int
    enqueued_ms: int
    due_ms: int
    claimed_ms: int | None
    finished_ms: int | None
    expires_ms: int | None
    token: int | None
    session: str | None
    flags: int
    reason: str | None
    cause: str | None
    error_type: str | None
    result: bytes | None
    extra: bytes | None
    held: int
    note_kinds: list[str] | None
    note_names: list[str]
    note_bodies: list[bytes]


class Candidates(NamedTuple):
    """The arrays of lp.candidates_1, in its order: from `reasons` on an array may be missing."""

    a: list[int]
    b: list[int]
    ids: list[bytes]
    states: list[int]
    lanes: list[int]
    attempts: list[int]
    losts: list[int]
    reasons: list[str | None]
    causes: list[str | None]
    error_types: list[str | None]
    at_ms: list[int]
    enqueued_ms: list[int] | None
    extras: list[bytes | None] | None
    args: list[bytes] | None

    @property
    def last(self) -> Position:
        """Where the last of them is."""
        return Position(self.a[-1], self.b[-1], self.ids[-1])


def view_of(row: JobRow, lanes: Mapping[int, Lane], policies: Mapping[int, Policy]) -> JobView:
    """One job, whole. A spoilt part shows itself as the tag "undecodable"."""
    extra = extra_or_none(row.extra) or UNREADABLE
    return JobView(
        id=row.id,
        state=STATES[row.state],
        lane=lanes.get(row.lane, NOWHERE),
        policy=policies.get(row.policy, UNSAID),
        args=row.args,
        attempt=row.attempt,
        lost=row.lost,
        enqueued_at_ms=row.enqueued_ms,
        due_at_ms=row.due_ms,
        claimed_at_ms=row.claimed_ms,
        finished_at_ms=row.finished_ms,
        expires_at_ms=row.expires_ms,
        token=row.token,
        session=row.session,
        cancel_requested=bool(row.flags & CANCELLING),
        reason=row.reason or "",
        cause=row.cause or "",
        error_type=row.error_type or "",
        result=row.result,
        tags=extra.tags,
        meta=extra.meta,
        cost=extra.cost,
        flow=extra.flow,
        unique=extra.unique,
        after=extra.after,
        if_parent_fails=extra.if_parent_fails,  # type: ignore[arg-type]  # stored words are the literal's
        held=row.held,
        notes=() if row.note_kinds is None else tuple(map(Note, row.note_kinds, row.note_names, row.note_bodies)),
        costs=extra.costs,
    )


def glances(
    candidates: Candidates, lanes: Mapping[int, Lane], fits: Callable[[int, int], bool]
) -> Iterator[tuple[Position, JobView]]:
    """Candidates with as much of each job as a filter looks at.

    `fits` says of a state and a lane whether such a job is worth a look at all.
    """
    for a, b, id, state, lane, attempt, lost, reason, cause, error_type, at_ms, enqueued, packed, args in zip(
        *(repeat(None) if column is None else column for column in candidates), strict=False
    ):
        if not fits(state, lane):
            continue
        extra = PLAIN if packed is None else extra_or_none(packed) or UNREADABLE
        found = STATES[state]
        job = JobView(
            id=id,
            state=found,
            lane=lanes.get(lane, NOWHERE),
            policy=UNSAID,
            args=args or b"",
            attempt=attempt,
            lost=lost,
            enqueued_at_ms=enqueued or 0,
            due_at_ms=at_ms,  # of a job that waits; the others do not show it
            claimed_at_ms=at_ms if found is State.running else None,
            finished_at_ms=at_ms if found in FINISHED else None,
            reason=reason or "",
            cause=cause or "",
            error_type=error_type or "",
            tags=extra.tags,
            flow=extra.flow,
            unique=extra.unique,
        )
        yield Position(a, b, id), job
