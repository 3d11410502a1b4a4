"""Decides what of the logs is public: events, the audit log, and what a check finds."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec.structs import replace

from limpet.core.jobs import repair
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import Entry, Finding
from limpet.core.records.record import Record, content, moment
from limpet.core.redaction.redaction import Redaction
from limpet.core.text.event_text import event_text, facts_of

AGENT: Final = "agent."  # how the kinds of lines begin that name the lease of an agent


class EventRecord(Record, frozen=True, kw_only=True):
    """What became of a breaker, a limit or a budget: in words, and as facts, which depend on its kind."""

    seq: int
    at: datetime
    kind: str
    text: str
    key: str | None
    until: datetime | None = None  # None: until it is reset
    percent: float | None = None
    spent: float | None = None
    cap: float | None = None
    wants: float | None = None
    unit: str | None = None

    @classmethod
    def of(cls, entry: Entry) -> EventRecord:
        """The public face of an event."""
        facts = facts_of(entry)
        known = {name: facts[name] for name in ("percent", "spent", "cap", "wants", "unit") if name in facts}
        until = facts.get("until")
        return cls(
            seq=entry.seq,
            at=moment(entry.at_ms),
            kind=entry.kind,
            text=event_text(entry),
            key=facts.get("key"),
            until=None if until is None else datetime.fromisoformat(until),
            **known,
        )


class AuditRecord(Record, frozen=True, kw_only=True):
    """Who did what, to which job, and why."""

    seq: int
    at: datetime
    kind: str  # job.cancel, queue.pause, …
    actor: str
    job: str | None
    reason: str | None
    data: Any

    @classmethod
    def of(cls, entry: Entry, redaction: Redaction) -> AuditRecord:
        """The public face of a line of the audit log."""
        data = content(entry.data)
        task = data.get("task") if isinstance(data, dict) else None
        hidden = redaction.of_task(task) if isinstance(task, str) else redaction.all
        return cls(
            seq=entry.seq,
            at=moment(entry.at_ms),
            kind=entry.kind,
            actor=entry.actor,
            job=None if entry.job is None else id_text(entry.job),
            reason=entry.reason or None,
            data=hidden.facts(data),
        )

    def without_lease(self) -> AuditRecord:
        """The same line for who may not end jobs: without the token of an agent's lease."""
        if not self.kind.startswith(AGENT) or not isinstance(self.data, dict):
            return self
        return replace(self, data={name: each for name, each in self.data.items() if name != "token"})


class JobHistory(Record, frozen=True, kw_only=True):
    """What the logs say of one job, oldest first; `complete` is False when only their newest lines were looked at."""

    audit: tuple[AuditRecord, ...]
    events: tuple[EventRecord, ...]
    complete: bool


class FindingRecord(Record, frozen=True, kw_only=True):
    """One thing that `doctor` says about the engine, the queues or the tasks."""

    level: Literal["ok", "warning", "error"]
    code: str
    text: str
    fix: str | None

    @classmethod
    def of(cls, finding: Finding) -> FindingRecord:
        """The public face of a finding."""
        return cls(level=finding.level, code=finding.code, text=finding.text, fix=finding.fix or None)


class DifferenceRecord(Record, frozen=True, kw_only=True):
    """One thing that a store counts or lists otherwise than its records say."""

    kind: repair.Kind
    what: str  # the counter, the limit, or the sort of entry
    found: int
    right: int
    jobs: tuple[str, ...]  # the first of those concerned, where they are known

    @classmethod
    def of(cls, found: repair.Difference) -> DifferenceRecord:
        """The public face of a difference."""
        jobs = tuple(map(id_text, found.jobs))
        return cls(kind=found.kind, what=found.what, found=found.found, right=found.right, jobs=jobs)


class RepairReport(Record, frozen=True, kw_only=True):
    """Where the counters and indexes of a store differed from its records, and whether they were set by them."""

    dry_run: bool
    differences: tuple[DifferenceRecord, ...]
