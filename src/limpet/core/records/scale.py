"""Decides how many workers some queues want, for whatever starts and ends workers."""

from __future__ import annotations

from collections.abc import Sequence

from limpet.core.jobs.state import State
from limpet.core.jobs.view import QueueView
from limpet.core.records.record import Record


class ScaleRecord(Record, frozen=True, kw_only=True):
    """How much work there is for some queues, and how many workers of that size would hold it."""

    queues: tuple[str, ...]
    ready: int
    running: int
    depth: int  # jobs that want a slot: running ones, and ready ones of queues that are not paused
    oldest_ready_s: float | None
    workers: int  # live ones that serve one of the queues, each process for itself
    wanted: int  # workers, each with `per_worker` slots

    @classmethod
    def of(cls, views: Sequence[QueueView], *, workers: int, per_worker: int, now_ms: int) -> ScaleRecord:
        """Of these queues. A paused one wants no slot for what it holds back."""
        ages = [now_ms - view.oldest_ready_at_ms for view in views if view.oldest_ready_at_ms is not None]
        running = sum(view.counts.get(State.running, 0) for view in views)
        waits = [view for view in views if view.gate is None or view.gate.paused is None]
        depth = running + sum(view.counts.get(State.ready, 0) for view in waits)
        return cls(
            queues=tuple(view.queue for view in views),
            ready=sum(view.counts.get(State.ready, 0) for view in views),
            running=running,
            depth=depth,
            oldest_ready_s=max(0, *ages) / 1000 if ages else None,
            workers=workers,
            wanted=-(-depth // per_worker),
        )
