"""Remembers what the model knows of one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from limpet.core.jobs.job import IfParentFails, Lane
from limpet.core.jobs.lease import MAX_EVENTS, MAX_EVENTS_BYTES, Note
from limpet.core.jobs.state import State


@dataclass
class ModelJob:
    """One job as it should be in the store."""

    id: bytes
    lane: Lane
    state: State
    due_at_ms: int
    max_lost: int
    unique: str | None = None
    expires_at_ms: int | None = None  # until it is started
    parent: bytes | None = None
    if_parent_fails: IfParentFails = "cancel"
    attempt: int = 0
    lost: int = 0
    held: int = 0
    token: int = 0  # 0 = not held
    session: str = ""
    handed_in: int = 0  # the claim after which the session slept that it was handed to
    cancel_requested: bool = False
    felled_by: bytes | None = None  # the dead job that took this one down, and whose replay brings it back
    flow: bytes | None = None
    costs: dict[str, int] = field(default_factory=dict)  # by unit, the plain one as ""
    claimed_at_ms: int = 0
    notes: dict[tuple[str, str], bytes] = field(default_factory=dict)  # by kind and name

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(f"limit:{key}" for key in (*self.lane.limits, *self.lane.keys))

    def cost_in(self, unit: str) -> int:
        return self.costs.get(unit, 0)

    @property
    def must_start(self) -> bool:
        return self.lane.limited or self.lost > 0

    def has(self, notes: Sequence[Note]) -> bool:
        """True when these are all the notes it should have."""
        return len(notes) == len(self.notes) and {(note.kind, note.name): note.body for note in notes} == self.notes

    def waits_for(self, event: str) -> bool:
        """True when this event would wake it."""
        return self.state is State.scheduled and self.notes.get(("waiting", event)) == b"%d" % self.due_at_ms

    def takes_no_more(self, value: bytes) -> bool:
        """True when an event with this value would be one too many."""
        kept = [body for (kind, _), body in self.notes.items() if kind == "event"]
        return len(kept) >= MAX_EVENTS or sum(map(len, kept)) + len(value) > MAX_EVENTS_BYTES

    def waits_no_more(self) -> None:
        """What it waited for is over."""
        self.notes = {key: body for key, body in self.notes.items() if key[0] != "waiting"}

    def overdue(self, now_ms: int) -> bool:
        """True when a job was not started in time: a store cancels it when it meets it, at the next sweep at least."""
        waits = self.state in (State.blocked, State.scheduled, State.ready)
        return waits and self.expires_at_ms is not None and self.expires_at_ms <= now_ms
