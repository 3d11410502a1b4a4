"""Decides the status of a cause: what people have said of it, and whether a job has died of it since."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from limpet.core.jobs.view import CauseView, Control

KIND: Final = "cause"  # the kind of the controls that keep reviews

CauseStatus = Literal["open", "acknowledged", "snoozed", "resolved", "regressed"]
STATUSES: Final[tuple[CauseStatus, ...]] = ("open", "acknowledged", "snoozed", "resolved", "regressed")
WAITING: Final[frozenset[CauseStatus]] = frozenset({"open", "regressed"})  # for a person to look


class Review(Struct, frozen=True, omit_defaults=True):
    """What people have said of a cause, as it is stored; and what the cause was then, for when its jobs are gone."""

    cause: str
    queue: str
    task: str
    status: Literal["open", "acknowledged", "snoozed", "resolved"] = "open"
    at_ms: int = 0  # when that was said
    by: str = ""
    until_ms: int = 0  # the end of a snooze
    assignee: str = ""
    note: str = ""
    escalated_at_ms: int | None = None
    escalated_by: str = ""
    type: str = ""
    message: str = ""
    first_ms: int = 0
    last_ms: int = 0  # the last death that was known when the status was said

    @property
    def key(self) -> tuple[str, str, str]:
        """Which cause it is about."""
        return (self.cause, self.queue, self.task)

    @property
    def name(self) -> str:
        """The name of the control: queues and tasks have no spaces."""
        return f"{self.queue} {self.task} {self.cause}"

    def status_at(self, last_ms: int, now_ms: int) -> CauseStatus:
        """The status when the last job died of it then: this is computed, so that no death has to look for a review."""
        if self.status == "resolved" and last_ms > self.last_ms:
            return "regressed"
        return "open" if self.status == "snoozed" and now_ms >= self.until_ms else self.status

    def of(self, view: CauseView | None) -> Review:
        """The same with what is known of the cause now."""
        if view is None:
            return self
        first_ms = min(self.first_ms or view.first_at_ms, view.first_at_ms)
        return replace(self, type=view.type, message=view.message, first_ms=first_ms)

    def control(self) -> Control:
        """The record that a store keeps."""
        return Control(KIND, self.name, msgspec.json.encode(self))


def read_review(control: Control) -> Review | None:
    """The review in a stored record; None when another release wrote one that cannot be read here."""
    try:
        return msgspec.json.decode(control.value, type=Review)
    except msgspec.MsgspecError:
        return None
