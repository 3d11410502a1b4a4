"""Remembers what the model knows of one job."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.job import IfParentFails, Lane
from holdfast.core.state import State


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
    cancel_requested: bool = False
    felled_by: bytes | None = None  # the dead job that took this one down, and whose replay brings it back

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(f"limit:{key}" for key in (*self.lane.limits, *self.lane.keys))

    @property
    def must_start(self) -> bool:
        return self.lane.limited or self.lost > 0

    def overdue(self, now_ms: int) -> bool:
        """True when a job was not started in time: a store cancels it when it meets it, at the next sweep at least."""
        waits = self.state in (State.blocked, State.scheduled, State.ready)
        return waits and self.expires_at_ms is not None and self.expires_at_ms <= now_ms
