"""Decides the public JSON form of schedules: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from datetime import datetime

from limpet.core.text.duration import instant_ms
from limpet.ops.calendar import NextRun, ScheduleView, TickView
from limpet.ops.schedule_runs import Backfill
from limpet.ops.shape import Shape, when


def schedule_line(view: ScheduleView) -> Shape:
    """A schedule as one line of a list."""
    return {
        "name": view.name,
        "state": view.state,
        "task": view.task,
        "when": view.when,
        "rule": view.rule,
        "args": view.args,
        "options": view.options,
        "overlap": view.overlap,
        "catch_up": view.catch_up,
        "jitter_s": view.jitter_s,
        "expires_in_s": view.expires_in_s,
        "source": view.source,
        "paused_by": view.paused_by or None,
        "paused_reason": view.paused_reason or None,
        "changed_by": view.changed_by or None,
        "last_at": None if view.last is None else _at(view.last),
        "next_at": [_at(moment) for moment in view.next],
        "note": view.note or None,
        "fix": view.fix or None,
    }


def schedule_whole(view: ScheduleView) -> Shape:
    """A schedule with what became of its last ticks."""
    return {**schedule_line(view), "ticks": [tick_shape(tick) for tick in view.ticks]}


def tick_shape(tick: TickView) -> Shape:
    """What became of one tick."""
    return {
        "at": _at(tick.at),
        "fired": tick.fired,
        "why": tick.why or None,
        "count": tick.count,
        "job": tick.job,
        "state": tick.state,
        "late_s": tick.late_s,
    }


def next_shape(run: NextRun) -> Shape:
    """One run that is to come."""
    return {"at": _at(run.at), "schedule": run.name, "task": run.task, "in_words": run.in_words}


def backfill_shape(report: Backfill) -> Shape:
    """What a backfill met and did."""
    return {
        "schedule": report.name,
        "ticks": report.ticks,
        "first_at": when(report.first_at_ms),
        "last_at": when(report.last_at_ms),
        "dry_run": report.dry_run,
        "enqueued": report.enqueued,
        "existing": report.existing,
    }


def _at(moment: datetime) -> str | None:
    return when(instant_ms(moment))
