"""Decides what of live events is public: jobs that have moved, counts of many, and the gaps between them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from limpet.core.jobs.bulletin import Counted, Moved
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.records.record import Record, moment

GapReason = Literal["lost", "slow", "unknown_id"]

_GAPS: Final[dict[GapReason, str]] = {
    "lost": "events were lost on their way",
    "slow": "this reader was too slow, and events were dropped",
    "unknown_id": "events after this id are not kept",
}


class JobEvent(Record, frozen=True, kw_only=True):
    """One job has moved. `kind` says by what: enqueued, claimed, succeeded, retried, dead, cancelled, released, …"""

    type: Literal["job"] = "job"
    id: str  # of the event, for this reader
    at: datetime
    kind: str
    job: str
    queue: str | None  # None: the process that told it did not know the job, nor found it stored
    task: str | None
    state: State  # the one that the job is in now
    attempt: int

    @classmethod
    def of(cls, moved: Moved, id: str) -> JobEvent:
        """The public face of a change."""
        queue, task = moved.scope
        return cls(
            id=id,
            at=moment(moved.at_ms),
            kind=moved.kind,
            job=id_text(moved.id),
            queue=queue or None,
            task=task or None,
            state=moved.state,
            attempt=moved.attempt,
        )


class JobCounts(Record, frozen=True, kw_only=True):
    """A number of jobs of a queue and task that have come to a state: there were too many to tell each."""

    type: Literal["counts"] = "counts"
    id: str
    at: datetime
    queue: str | None
    task: str | None
    state: State
    count: int

    @classmethod
    def of(cls, counted: Counted, id: str, at_ms: int) -> JobCounts:
        """The public face of a count."""
        queue, task = counted.scope
        return cls(
            id=id, at=moment(at_ms), queue=queue or None, task=task or None, state=counted.state, count=counted.count
        )


class EventGap(Record, frozen=True, kw_only=True):
    """Something is missing here, and it is not known what: read the state of jobs again."""

    type: Literal["gap"] = "gap"
    id: str
    at: datetime
    reason: GapReason
    text: str

    @classmethod
    def of(cls, reason: GapReason, id: str, at_ms: int) -> EventGap:
        """A gap, in words too."""
        return cls(id=id, at=moment(at_ms), reason=reason, text=_GAPS[reason])


LiveEvent = JobEvent | JobCounts | EventGap
