"""Decides what is told of decisions about dead jobs: by cause, and what became of the jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from limpet.core.endings.review import CauseStatus
from limpet.core.records.record import Record


class DecisionRecord(Record, frozen=True, kw_only=True):
    """What one person did to dead jobs of a cause, or said of it."""

    action: str  # retry, discard, acknowledge, snooze, resolve, reopen, assign, note, escalate
    at: datetime
    until: datetime  # when its last job was changed
    actor: str
    reason: str | None
    jobs: int  # that it changed; of something said, how many were dead then
    job: str | None  # the id, if it changed one
    edited: int  # of the jobs: how many run with other arguments
    query: str | None  # how the jobs were picked
    operation: str | None  # the id of the operation that changed them, which may take long
    said: dict[str, Any]  # status, until, assignee, note: as far as they were set
    became: dict[str, int]  # of retried jobs: succeeded, died_again, cancelled, waiting, running, gone, not_looked_up


class CauseDecisions(Record, frozen=True, kw_only=True):
    """One cause as it is now, and what was decided about it, oldest first."""

    cause: str
    queue: str
    task: str
    error: str
    message: str | None  # None: no job is dead of it, and it has no review
    status: CauseStatus | None
    count: int  # of jobs that are dead now
    decisions: tuple[DecisionRecord, ...]


class DecisionLog(Record, frozen=True, kw_only=True):
    """Decisions about dead jobs, by cause; the cause that was decided about last comes first."""

    since: datetime | None  # None: since the audit log begins
    until: datetime  # the instant of the look
    causes: tuple[CauseDecisions, ...]
    cursor: int | None  # earlier lines of the audit log were not read: go on with those before this seq
