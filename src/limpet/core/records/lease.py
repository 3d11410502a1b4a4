"""Decides what an agent is told of its lease."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from limpet.core.jobs.state import State
from limpet.core.records.record import Record


class HeldLimit(Record, frozen=True, kw_only=True):
    """A limit that a provider's "too many requests" holds back."""

    limit: str
    until: datetime


class LeaseAnswer(Record, frozen=True, kw_only=True):
    """What became of a heartbeat or a settlement; `stale` and `gone` are answers, not errors."""

    answer: Literal["done", "stale", "gone"]
    state: State | None
    cancel_requested: bool = False
    until: datetime | None = None  # the lease, after a heartbeat
    held_limits: tuple[HeldLimit, ...] = ()  # of the job: use them less
    text: str
