"""Decides what of a cause is public: its dead jobs, and what people have said of it."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from limpet.core.endings.review import CauseStatus, Review
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import CauseView
from limpet.core.records.record import Record, instant, moment

HOUR_MS: Final = 3_600_000


class CauseKey(NamedTuple):
    """Which cause is meant: its fingerprint or the beginning of it, and queue and task if several have that."""

    cause: str
    queue: str | None = None
    task: str | None = None


class Hours(NamedTuple):
    """How many jobs died in each of the last 24 hours and are dead now, the last hour last."""

    counts: tuple[int, ...]
    from_ms: int  # since when: earlier ones were too many to be looked at


class CauseRecord(Record, frozen=True, kw_only=True):
    """Dead jobs of one origin, and what people have said of it."""

    cause: str
    count: int  # of jobs that are dead now
    error: str
    message: str
    task: str
    queue: str
    first_at: datetime
    last_at: datetime
    sample: str | None  # the id of one of them
    per_hour: float  # dead jobs an hour, since the first of them
    status: CauseStatus
    status_at: datetime | None  # when that was said
    status_by: str | None
    until: datetime | None  # the end of a snooze
    assignee: str | None
    note: str | None
    escalated_at: datetime | None
    escalated_by: str | None
    version: int  # grows with everything that is said of it
    hours: tuple[int, ...] | None = None  # deaths in each of the last 24 hours, when asked for
    hours_from: datetime | None = None  # since when they are counted

    @property
    def key(self) -> CauseKey:
        """What names this cause and no other."""
        return CauseKey(self.cause, self.queue, self.task)

    @classmethod
    def of(
        cls, view: CauseView | None, review: Review, version: int, now_ms: int, hours: Hours | None = None
    ) -> CauseRecord:
        """The public face of a cause; without a view none of its jobs is dead now."""
        review = review.of(view)
        last_ms = max(review.first_ms, review.last_ms) if view is None else view.last_at_ms
        status = review.status_at(last_ms, now_ms)
        age_hours = 1.0 if view is None else max(1.0, (now_ms - view.first_at_ms) / HOUR_MS)
        count = 0 if view is None else view.count
        return cls(
            cause=review.cause,
            count=count,
            error=review.type,
            message=review.message,
            task=review.task,
            queue=review.queue,
            first_at=moment(review.first_ms),
            last_at=moment(last_ms),
            sample=None if view is None else id_text(view.sample),
            per_hour=round(count / age_hours, 2),
            status=status,
            status_at=instant(review.at_ms or None),
            status_by=review.by or None,
            until=instant(review.until_ms) if status == "snoozed" else None,
            assignee=review.assignee or None,
            note=review.note or None,
            escalated_at=instant(review.escalated_at_ms),
            escalated_by=review.escalated_by or None,
            version=version,
            hours=None if hours is None else hours.counts,
            hours_from=None if hours is None else moment(hours.from_ms),
        )
