"""Decides what an agent reads before it begins: how the queue stands, and what it holds itself."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from limpet.core.records.lease import HeldLimit
from limpet.core.records.limit import BreakerRecord
from limpet.core.records.queue import QueueRecord, StateCounts
from limpet.core.records.record import Record

MOST: Final = 5  # lines of each kind: an agent pays for each


class HoldRecord(Record, frozen=True, kw_only=True):
    """A job that the agent holds, as it was claimed."""

    id: str
    token: int
    task: str
    attempt: int
    until: datetime  # the lease, without a heartbeat


class PrimeRecord(StateCounts, frozen=True, kw_only=True):
    """The state of a namespace for one agent; of each kind the first few."""

    namespace: str
    agent: str | None
    holds: tuple[HoldRecord, ...]
    queues: tuple[QueueRecord, ...]  # with jobs that are not finished, those with most ready jobs first
    questions: int  # that wait for a person
    breakers: tuple[BreakerRecord, ...]  # that are open
    limits: tuple[HeldLimit, ...]
