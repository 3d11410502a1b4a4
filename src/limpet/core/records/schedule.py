"""Decides what of a schedule is public: its rule, how it stands, its next runs and its last ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import field

from limpet.core.records.record import Record
from limpet.core.schedules import schedule_text
from limpet.core.schedules.zone import Zone
from limpet.core.text.duration import instant_ms

ScheduleState = Literal["on", "paused", "ended", "absent", "unreadable"]


class ScheduleRecord(Record, frozen=True, kw_only=True):
    """A schedule as one line of a list. In Python, instants of a cron schedule are in its own time zone."""

    name: str
    state: ScheduleState
    task: str = ""
    when: str = ""  # in words
    rule: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    overlap: str = ""
    catch_up: str = ""
    jitter_s: float = 0
    expires_in_s: float | None = None
    source: str = ""
    paused_by: str | None = None
    paused_reason: str | None = None
    changed_by: str | None = None
    last_at: datetime | None = None  # the newest tick that is decided
    next_at: tuple[datetime, ...] = ()
    note: str | None = None  # why it does not run, or what else a person should know
    fix: str | None = None

    def next_in_words(self, now: datetime) -> tuple[str, ...]:
        """The next runs on the wall clock of the schedule, and how far away they are."""
        zone = Zone(self.rule.get("tz", "UTC"))
        return tuple(schedule_text.of_tick(instant_ms(at), zone, instant_ms(now)) for at in self.next_at)


class TickRecord(Record, frozen=True, kw_only=True):
    """What became of one tick, or of `count` in a row that were dropped for the same reason."""

    at: datetime
    fired: bool
    why: str | None = None  # it was dropped: overlap, unique, missed, expired
    count: int = 1
    job: str | None = None  # its run; of a dropped tick, the run that was in its way
    state: str | None = None  # of its run; None once that is no longer stored
    late_s: float = 0  # how long after its instant it was decided


class ScheduleDetail(ScheduleRecord, frozen=True, kw_only=True):
    """A schedule with what became of its last ticks, newest first."""

    ticks: tuple[TickRecord, ...] = ()


class NextRun(Record, frozen=True, kw_only=True):
    """One run that is to come."""

    at: datetime
    schedule: str
    task: str
    in_words: str


class RemovedSchedule(Record, frozen=True, kw_only=True):
    """A schedule that was removed."""

    schedule: str
    state: Literal["removed"] = "removed"


class BackfillReport(Record, frozen=True, kw_only=True):
    """What a backfill met and did."""

    schedule: str
    ticks: int
    first_at: datetime | None
    last_at: datetime | None
    dry_run: bool
    enqueued: int = 0
    existing: int = 0  # ticks whose job is stored already
