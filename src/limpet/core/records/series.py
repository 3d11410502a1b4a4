"""Decides what is public of the counts over time: how attempts ended, how long they took, and where jobs were."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from limpet.core.jobs.minute import Tally, quantiles_s, summed
from limpet.core.jobs.rollup import DEPTHS, Depth
from limpet.core.records.rate import RUNS, SHARES, WAITS, RateRecord, rate_over
from limpet.core.records.record import Record

By = Literal["queue", "task"]


class DepthRecord(Record, frozen=True, kw_only=True):
    """Where jobs were, point by point: the most that was seen in it. None: no worker has looked."""

    blocked: list[int | None]
    scheduled: list[int | None]
    ready: list[int | None]
    running: list[int | None]
    dead: list[int | None]
    oldest_ready_s: list[float | None]  # None, too, where no job was ready

    @classmethod
    def of(cls, points: Sequence[Depth | None]) -> DepthRecord:
        """One number of each state for each point."""
        return cls(
            **{state: [None if depth is None else getattr(depth, state) for depth in points] for state in DEPTHS},
            oldest_ready_s=[
                None if depth is None or depth.oldest_ms is None else depth.oldest_ms / 1000 for depth in points
            ],
        )


class LineRecord(Record, frozen=True, kw_only=True):
    """One line of a chart: of all jobs, of a queue, or of a task. Each list has one value for each point."""

    queue: str | None
    task: str | None  # "" stands for all tasks beyond the 200 busiest, as a queue does
    whole: RateRecord  # of all points together
    ended: dict[str, list[int]]  # attempts, by outcome
    run_p50_s: list[float | None]
    run_p95_s: list[float | None]
    run_p99_s: list[float | None]
    wait_p50_s: list[float | None]
    wait_p95_s: list[float | None]
    wait_p99_s: list[float | None]
    depth: DepthRecord | None  # of the whole and of queues

    @classmethod
    def of(
        cls,
        points: Sequence[Tally],
        minutes: float,
        *,
        queue: str | None = None,
        task: str | None = None,
        depths: Sequence[Depth | None] | None = None,
    ) -> LineRecord:
        """Of the tallies of its points."""
        whole = summed(points)
        return cls(
            queue=queue,
            task=task,
            whole=rate_over(whole, minutes),
            ended={outcome: [point.ended.get(outcome, 0) for point in points] for outcome in whole.ended},
            **dict(zip(RUNS, _times([point.runs for point in points]), strict=True)),
            **dict(zip(WAITS, _times([point.waits for point in points]), strict=True)),
            depth=None if depths is None else DepthRecord.of(depths),
        )


def _times(points: Sequence[dict[int, int]]) -> list[list[float | None]]:
    """A list for each share, with one time for each point."""
    return [list(line) for line in zip(*(quantiles_s(buckets, SHARES) for buckets in points), strict=True)]


class SeriesRecord(Record, frozen=True, kw_only=True):
    """Counts over time, point by point. What a worker that was killed had counted in its last 5 s is missing.

    The store's own counters are exact: their changes are in `ever`.
    """

    since: datetime
    until: datetime  # the last point may not be over
    step_s: float
    kept_by: Literal["minute", "hour"]  # what the points are made of
    at: tuple[datetime, ...]  # when each point begins
    total: LineRecord
    lines: tuple[LineRecord, ...]  # by queue or task, the busiest first
    lines_left_out: int  # those that are in `total` only
    ever: dict[str, list[int | None]] | None  # by how much the store's counters grew; None: asked for some queues only
