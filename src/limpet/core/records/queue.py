"""Decides what of a queue is public, and of all queues together."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from limpet.core.gate import Gate
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import Counts, QueueView
from limpet.core.records.record import Record, instant, moment
from limpet.core.records.task import MinuteRecord


class PauseRecord(Record, frozen=True, kw_only=True):
    """Who paused something, and why."""

    by: str
    reason: str
    at: datetime

    @classmethod
    def of(cls, gate: Gate | None) -> PauseRecord | None:
        """The pause of a gate; None when it has none."""
        if gate is None or gate.paused is None:
            return None
        return cls(by=gate.paused.by, reason=gate.paused.reason, at=moment(gate.paused.at_ms))


class StateCounts(Record, frozen=True, kw_only=True):
    """How many jobs are in each state now."""

    blocked: int
    scheduled: int
    ready: int
    running: int
    succeeded: int
    dead: int
    cancelled: int


class QueueRecord(StateCounts, frozen=True, kw_only=True):
    """A queue in one look: its jobs by state, and what rules it."""

    queue: str
    oldest_ready_at: datetime | None
    paused: PauseRecord | None
    draining: bool
    concurrency: int | None
    depth: int | None
    tenant_depth: int | None

    @classmethod
    def of(cls, view: QueueView) -> QueueRecord:
        """The public face of a queue."""
        gate, rule = view.gate, None if view.gate is None else view.gate.rule
        return cls(
            queue=view.queue,
            **{state.value: view.counts.get(state, 0) for state in STATES},
            oldest_ready_at=instant(view.oldest_ready_at_ms),
            paused=PauseRecord.of(gate),
            draining=gate is not None and gate.draining,
            concurrency=None if rule is None else rule.concurrency,
            depth=None if rule is None else rule.depth,
            tenant_depth=None if rule is None else rule.tenant_depth,
        )

    @property
    def waiting(self) -> int:
        """Jobs that are still to start."""
        return self.blocked + self.scheduled + self.ready


class EverRecord(Record, frozen=True, kw_only=True):
    """What has happened since the store was made."""

    enqueued: int
    succeeded: int
    cancelled: int
    discarded: int
    leases_lost: int
    late_ends_refused: int


class StatsRecord(StateCounts, frozen=True, kw_only=True):
    """The counters, which sum up: enqueued = what is stored now and what has left the store."""

    ever: EverRecord | None  # None: asked for some queues only
    last_minute: MinuteRecord  # by what live workers say

    @classmethod
    def of(cls, counts: Counts, last_minute: MinuteRecord) -> StatsRecord:
        """The public face of the counters."""
        ever = EverRecord(
            enqueued=counts.enqueued,
            succeeded=counts.succeeded,
            cancelled=counts.cancelled,
            discarded=counts.discarded,
            leases_lost=counts.lost,
            late_ends_refused=counts.stale,
        )
        return cls(
            **{state.value: counts.total(state) for state in STATES},
            ever=ever if counts.whole else None,
            last_minute=last_minute,
        )


class RetentionRecord(Record, frozen=True, kw_only=True):
    """How long finished jobs of a queue stay, in seconds; None: for ever; left out: as for all queues."""

    queue: str
    keep: dict[State, float | None]
    set_by: dict[State, Literal["operator", "code"]]


class RetentionChange(RetentionRecord, frozen=True, kw_only=True):
    """The same after a change, with what people should know besides."""

    notes: tuple[str, ...] = ()


class WeightRecord(Record, frozen=True, kw_only=True):
    """One queue ("queue:mail") or tenant ("tenant:acme") and its share: jobs per turn. All others have 1."""

    name: str
    weight: int


class WeightChange(WeightRecord, frozen=True, kw_only=True):
    """The same after a change, with what people should know besides."""

    notes: tuple[str, ...] = ()
