"""Builds the views of jobs that people see from what is stored about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Note
from limpet.core.jobs.state import STATES
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


def view_of(row: tuple[Any, ...], lanes: Mapping[int, Lane], policies: Mapping[int, Policy]) -> JobView:
    """One job, whole, from a row of lp.jobs_1. A spoilt part shows itself as the tag "undecodable"."""
    id, state, lane, policy, args, attempt, lost, enqueued, due, claimed, finished, expires, token, session = row[:14]
    flags, reason, cause, error_type, result, packed, held, kinds, names, bodies = row[14:]
    extra = extra_or_none(packed) or UNREADABLE
    return JobView(
        id=id,
        state=STATES[state],
        lane=lanes.get(lane, NOWHERE),
        policy=policies.get(policy, UNSAID),
        args=args,
        attempt=attempt,
        lost=lost,
        enqueued_at_ms=enqueued,
        due_at_ms=due,
        claimed_at_ms=claimed,
        finished_at_ms=finished,
        expires_at_ms=expires,
        token=token,
        session=session,
        cancel_requested=bool(flags & CANCELLING),
        reason=reason or "",
        cause=cause or "",
        error_type=error_type or "",
        result=result,
        tags=extra.tags,
        meta=extra.meta,
        cost=extra.cost,
        flow=extra.flow,
        unique=extra.unique,
        after=extra.after,
        if_parent_fails=extra.if_parent_fails,  # type: ignore[arg-type]  # stored words are the literal's
        held=held,
        notes=() if kinds is None else tuple(map(Note, kinds, names, bodies)),
        costs=extra.costs,
    )


def glances(
    columns: Sequence[Sequence[Any] | None], lanes: Mapping[int, Lane], fits: Callable[[int, int], bool]
) -> Iterator[tuple[Position, JobView]]:
    """Candidates with as much of each job as a filter looks at, from the arrays of lp.candidates_1.

    `fits` says of a state and a lane whether such a job is worth a look at all.
    """
    for a, b, id, state, lane, attempt, lost, reason, cause, error_type, enqueued, packed, args in zip(
        *(repeat(None) if column is None else column for column in columns), strict=False
    ):
        if not fits(state, lane):
            continue
        extra = PLAIN if packed is None else extra_or_none(packed) or UNREADABLE
        job = JobView(
            id=id,
            state=STATES[state],
            lane=lanes.get(lane, NOWHERE),
            policy=UNSAID,
            args=args or b"",
            attempt=attempt,
            lost=lost,
            enqueued_at_ms=enqueued or 0,
            due_at_ms=0,
            reason=reason or "",
            cause=cause or "",
            error_type=error_type or "",
            tags=extra.tags,
            flow=extra.flow,
            unique=extra.unique,
        )
        yield Position(a, b, id), job
