"""Decides what of a redaction rule is public: all of it, since it names keys and no values."""

from __future__ import annotations

from datetime import datetime

from limpet.core.records.record import Record, instant
from limpet.core.redaction.published import PublishedRule


class RuleRecord(Record, frozen=True, kw_only=True):
    """A rule that hides something of jobs on every face."""

    rule: str
    task: str | None  # None: of all tasks
    added_by: str | None  # None: code declares it, or did
    added_at: datetime | None

    @classmethod
    def of(cls, one: PublishedRule) -> RuleRecord:
        """The public face of a stored rule."""
        return cls(rule=one.rule, task=one.task or None, added_by=one.by or None, added_at=instant(one.at_ms or None))
