"""Decides what is told of an action on many jobs."""

from __future__ import annotations

from typing import Any

from msgspec import field

from limpet.core.records.job import JobRecord
from limpet.core.records.record import Record


class BulkReport(Record, frozen=True):
    """What a bulk action met and did. `answers` counts the store's words; `done` counts changed jobs."""

    action: str
    matched: int
    samples: tuple[JobRecord, ...]
    dry_run: bool
    done: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)  # job → who holds its unique key, for the first refused
    made: dict[str, str] = field(default_factory=dict)  # job → the new one that was made of it
    edits: tuple[dict[str, Any], ...] = ()  # of the samples: arguments that change, before and after
    notes: tuple[str, ...] = ()  # what people should know besides
