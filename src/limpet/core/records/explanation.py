"""Decides how it is said why a job is where it is: as sentences, and as facts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import field
from msgspec.structs import replace

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.records.record import Record
from limpet.core.redaction.secrets import Secrets


class Reason(Record, frozen=True):
    """One cause: a stable `code`, a sentence, the instant it ends by itself (if it does), and the facts."""

    code: str
    text: str
    until: datetime | None = None
    data: dict[str, Any] = field(default_factory=dict)


class Explanation(Record, frozen=True, kw_only=True):
    """Why a job is where it is; `str()` says it in words, most decisive reason first."""

    id: str
    state: State
    task: str
    queue: str
    reasons: tuple[Reason, ...]
    text: str

    @classmethod
    def of(cls, view: JobView, reasons: Iterable[Reason]) -> Explanation:
        """The reasons, and all of them in words."""
        id, found = id_text(view.id), tuple(reasons)
        head = f"Job {id} ({view.lane.task}, queue {view.lane.queue}) is {view.state.value}"
        lines = [f"{head}:", *(f"  - {reason.text}" for reason in found)]
        words = f"{head}: {found[0].text}." if len(found) == 1 else "\n".join(lines)
        return cls(id=id, state=view.state, task=view.lane.task, queue=view.lane.queue, reasons=found, text=words)

    def without(self, secrets: Secrets) -> Explanation:
        """The same without the secrets of the job, which keys of limits may be made of."""
        if not secrets:
            return self
        reasons = tuple(
            replace(each, text=secrets.out_of(each.text), data=secrets.out_of_texts(each.data)) for each in self.reasons
        )
        return replace(self, reasons=reasons, text=secrets.out_of(self.text))

    def __str__(self) -> str:
        return self.text
