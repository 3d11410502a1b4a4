"""Decides what of jobs that wait is public: what they ask people, and what became of an event or a decision."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from limpet.core.flows.steps import ANSWER, Asking
from limpet.core.jobs.ids import id_text
from limpet.core.records.record import Record, content, instant, moment
from limpet.core.redaction.redaction import Shown


class SignalRecord(Record, frozen=True, kw_only=True):
    """What became of a signal or a decision; `already` and `finished` are answers, not errors."""

    id: str
    event: str
    answer: Literal["woken", "kept", "already", "finished"]
    text: str


class ApprovalRecord(Record, frozen=True, kw_only=True):
    """What a job asks a person, and waits for."""

    id: str
    task: str
    queue: str
    kind: Literal["approval", "question"]  # approve or reject it; answer it in words
    name: str
    question: str
    until: datetime | None  # None: as long as it takes
    enqueued_at: datetime
    args: Any

    @classmethod
    def of(cls, view: Shown, asking: Asking, until_ms: int) -> ApprovalRecord:
        """The public face of a question."""
        return cls(
            id=id_text(view.id),
            task=view.lane.task,
            queue=view.lane.queue,
            kind="question" if asking.event.startswith(ANSWER) else "approval",
            name=asking.name,
            question=asking.question,
            until=instant(until_ms),
            enqueued_at=moment(view.enqueued_at_ms),
            args=content(view.args),
        )


class ApprovalPage(Record, frozen=True, kw_only=True):
    """What jobs ask people, those with the nearest end first; `complete` is False when there may be more."""

    approvals: tuple[ApprovalRecord, ...]
    cursor: str | None = None
    complete: bool = True
