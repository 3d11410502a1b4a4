"""Reads what was counted minute by minute and hour by hour: rates, run times and depths over a time, for charts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.jobs.minute import Tally
from limpet.core.jobs.rollup import (
    DEPTHS,
    HOUR_MS,
    HOURS_OF_DAYS,
    MARK,
    MINUTE_MS,
    MINUTES_OF_HOURS,
    PARTS,
    Depth,
    Look,
    Mark,
    Part,
    Rollup,
    hours_of,
    minutes_of,
    read,
)
from limpet.core.records.record import moment
from limpet.core.records.series import By, LineRecord, SeriesRecord
from limpet.core.text.duration import Duration, text_of_ms, to_ms
from limpet.ops.declared import declared_tasks
from limpet.stores.base import Store

MOST_POINTS: Final = 600
USUAL_POINTS: Final = 120  # of which a step is chosen that is not given
MOST_VALUES: Final = 12_000  # points of all lines, for each kind of value
FEWEST_LINES: Final = 20
AT_ONCE: Final = 8  # records that are asked for at once
LONGEST_MS: Final = (HOURS_OF_DAYS - 1) * 24 * HOUR_MS
BY_MINUTE_MS: Final = (MINUTES_OF_HOURS - 1) * HOUR_MS
_EVER: Final = {
    "enqueued": "enqueued",
    "succeeded": "succeeded",
    "cancelled": "cancelled",
    "discarded": "discarded",
    "leases_lost": "lost",
    "late_ends_refused": "stale",
}
_STEPS_MS: Final = tuple(MINUTE_MS * minutes for minutes in (1, 5, 15, 60, 360, 1_440))


class Asked(Struct, frozen=True, kw_only=True):
    """Which counts: of how long, by which step, of what."""

    last: Duration = "1h"
    step: Duration | None = None
    by: By | None = None
    queue: str | None = None
    task: str | None = None
    ago: Duration = 0  # ends so long ago: "7d" for the same hours of last week


class Span(Struct, frozen=True):
    """The points of an answer, in ms."""

    since_ms: int
    until_ms: int
    step_ms: int
    by_hour: bool

    @classmethod
    def of(cls, asked: Asked, now_ms: int) -> Span:
        """What can be answered; a span or a step that cannot be is refused."""
        last_ms, ago_ms = to_ms(asked.last, what="last"), to_ms(asked.ago, what="ago")
        if last_ms < MINUTE_MS or last_ms + ago_ms > LONGEST_MS:
            raise InvalidOption(
                f"last={asked.last!r}, ago={asked.ago!r} is not within what is kept",
                fix="counts are kept for 35 days: ask for 1m to 35d, such as last=1h, ago=7d",
            )
        until_ms = now_ms - ago_ms
        by_hour = now_ms - (until_ms - last_ms) > BY_MINUTE_MS
        unit_ms = HOUR_MS if by_hour else MINUTE_MS
        if asked.step is None:
            usual = (step for step in _STEPS_MS if step >= unit_ms and last_ms <= step * USUAL_POINTS)
            step_ms = next(usual, _STEPS_MS[-1])
        else:
            step_ms = _whole_step(to_ms(asked.step, what="step"), asked, unit_ms, last_ms)
        since_ms = (until_ms - last_ms) // step_ms * step_ms
        return cls(since_ms, until_ms, step_ms, by_hour)

    @property
    def points(self) -> int:
        """How many there are: the last one may not be over."""
        return max(1, -(-(self.until_ms - self.since_ms) // self.step_ms))

    def point_of(self, at_ms: int) -> int | None:
        """The point in which an instant lies."""
        point = (at_ms - self.since_ms) // self.step_ms
        return point if 0 <= point < self.points else None


def _whole_step(step_ms: int, asked: Asked, unit_ms: int, last_ms: int) -> int:
    """A step as it was asked for; beyond 48 hours there are hours only, so a shorter one becomes an hour."""
    if step_ms < MINUTE_MS or step_ms % MINUTE_MS:
        raise InvalidOption(f"step={asked.step!r} is not a number of minutes", fix="such as 1m, 15m or 1h")
    if last_ms / step_ms > MOST_POINTS:
        least = text_of_ms(-(-last_ms // MOST_POINTS // MINUTE_MS) * MINUTE_MS)
        raise InvalidOption(
            f"step={asked.step!r} makes more than {MOST_POINTS} points of {asked.last!r}",
            fix=f"ask for a step of {least} or more, or for a shorter time",
        )
    return -(-step_ms // unit_ms) * unit_ms


async def series(store: Store, asked: Asked, *, now_ms: int | None = None) -> SeriesRecord:
    """What was counted, point by point."""
    span = Span.of(asked, await store.now() if now_ms is None else now_ms)
    today = {task.name: task.alias_of for task in await declared_tasks(store) if task.alias_of}
    points = _Points(span, asked, today)
    for rollup, begins_ms in await _rollups(store, span):
        points.take(rollup, begins_ms)
        await asyncio.sleep(0)  # 200 tasks take milliseconds, and there may be thousands of minutes
    return points.record()


async def _rollups(store: Store, span: Span) -> list[tuple[Rollup, int]]:
    """The hours and minutes that have to do with these points, in order, with when each begins."""
    mark, loose = await _loose(store)
    before_ms = span.since_ms - (HOUR_MS if span.by_hour else MINUTE_MS)  # from there on counters have grown
    first_hour, last_hour = before_ms // HOUR_MS, (span.until_ms - 1) // HOUR_MS
    hours: dict[int, Rollup] = {}
    if span.by_hour:
        days = range(first_hour // 24, last_hour // 24 + 1)
        found = await _read(store, [hours_of(day) for day in days])
        hours = {each.at: each for each in found if first_hour <= each.at <= last_hour}
        # Those that are not summed yet: few, as long as a worker lives.
        first_hour = max(first_hour, mark.hour + 1, last_hour - MINUTES_OF_HOURS + 1)
    kinds = [minutes_of(hour) for hour in range(first_hour, last_hour + 1)]
    minutes = {each.at: each for each in await _read(store, kinds)}
    minutes = {**loose, **minutes}
    kept = (at for at in sorted(minutes) if first_hour <= at // 60 <= last_hour and at // 60 not in hours)
    return [(hours[at], at * HOUR_MS) for at in sorted(hours)] + [(minutes[at], at * MINUTE_MS) for at in kept]


async def _loose(store: Store) -> tuple[Mark, dict[int, Rollup]]:
    """How far all is written, and the minutes that only workers' parts hold until now."""
    marks = [mark for each in await store.controls(MARK[0]) if (mark := read(each, Mark)) is not None]
    mark = marks[0] if marks else Mark(0, 0)
    parts = [part for each in await store.controls(PARTS) if (part := read(each, Part)) is not None]
    minutes = {at for part in parts for at in part.minutes if at > mark.minute}
    return mark, {at: Rollup.of(at, (line for part in parts for line in part.minutes.get(at, []))) for at in minutes}


async def _read(store: Store, kinds: Sequence[str]) -> list[Rollup]:
    """The records of these kinds, some at once; the loop turns in between, since there may be thousands."""
    found = []
    for start in range(0, len(kinds), AT_ONCE):
        for controls in await asyncio.gather(*(store.controls(kind) for kind in kinds[start : start + AT_ONCE])):
            found += [rollup for each in controls if (rollup := read(each, Rollup)) is not None]
            await asyncio.sleep(0)
    return found


class _Points:
    """Sums rollups into points, and those into lines."""

    def __init__(self, span: Span, asked: Asked, today: Mapping[str, str]) -> None:
        self._span = span
        self._asked = asked
        self._today = today
        self._task = None if asked.task is None else today.get(asked.task, asked.task)
        self._total = self._new()
        self._lines: dict[str, list[Tally]] = {}
        self._depths: dict[str | None, list[Depth | None]] = {}
        self._looks: list[Look | None] = [None] * span.points
        self._first: Look | None = None  # from before the first point: from there on the counters have grown

    def _new(self) -> list[Tally]:
        return [Tally() for _ in range(self._span.points)]

    def take(self, rollup: Rollup, begins_ms: int) -> None:
        """Add a minute or an hour to its point."""
        point = self._span.point_of(begins_ms)
        if point is None:
            if rollup.look is not None and begins_ms < self._span.since_ms:
                self._first = rollup.look
            return
        for queue, name, tally in rollup.lines:
            task = self._today.get(name, name)
            if self._asked.queue not in (None, queue) or self._task not in (None, task):
                continue
            self._total[point].add(tally)
            if self._asked.by is not None:
                key = queue if self._asked.by == "queue" else task
                line = self._lines.get(key)
                if line is None:
                    line = self._lines[key] = self._new()
                line[point].add(tally)
        if rollup.look is not None:
            self._looks[point] = rollup.look
            self._take_depths(rollup.look, point)

    def _take_depths(self, look: Look, point: int) -> None:
        chosen = self._asked.queue
        depths = {name: depth for name, depth in look.depths.items() if chosen in (None, name)}
        whole = _together(depths.values())
        for name, depth in (*depths.items(), (None, whole)):
            line = self._depths.setdefault(name, [None] * self._span.points)
            seen = line[point]
            line[point] = depth if seen is None else depth.peak(seen)

    def record(self) -> SeriesRecord:
        span, asked = self._span, self._asked
        busiest = sorted(self._lines, key=lambda key: (-sum(tally.total for tally in self._lines[key]), key))
        if asked.by == "queue":  # a queue in which nothing ended may have jobs that wait
            busiest += sorted(name for name in self._depths if name is not None and name not in self._lines)
        most = max(FEWEST_LINES, MOST_VALUES // span.points)
        return SeriesRecord(
            since=moment(span.since_ms),
            until=moment(span.until_ms),
            step_s=span.step_ms / 1000,
            kept_by="hour" if span.by_hour else "minute",
            at=tuple(moment(span.since_ms + point * span.step_ms) for point in range(span.points)),
            total=self._line(self._total, queue=asked.queue, task=self._task, depths=asked.task is None),
            lines=tuple(self._named(key) for key in busiest[:most]),
            lines_left_out=max(0, len(busiest) - most),
            ever=self._ever(),
        )

    def _named(self, key: str) -> LineRecord:
        tallies = self._lines.get(key) or self._new()
        if self._asked.by == "queue":
            return self._line(tallies, queue=key, task=self._task, depths=self._task is None)
        return self._line(tallies, queue=self._asked.queue, task=key, depths=False)

    def _line(self, tallies: list[Tally], *, queue: str | None, task: str | None, depths: bool) -> LineRecord:
        minutes = (self._span.until_ms - self._span.since_ms) / MINUTE_MS
        seen = self._depths.get(queue) or [None] * self._span.points
        return LineRecord.of(tallies, minutes, queue=queue, task=task, depths=seen if depths else None)

    def _ever(self) -> dict[str, list[int | None]] | None:
        """By how much the store's counters grew in each point: since the look before, if there was one."""
        looks = [look for look in self._looks if look is not None]
        if any(not look.whole for look in looks) or self._asked.queue is not None or self._task is not None:
            return None
        grown: dict[str, list[int | None]] = {name: [] for name in _EVER}
        before = self._first
        for look in self._looks:
            for name, field in _EVER.items():
                known = look is not None and before is not None
                grown[name].append(max(0, getattr(look, field) - getattr(before, field)) if known else None)
            before = look or before
        return grown


def _together(depths: Iterable[Depth]) -> Depth:
    """All queues in one."""
    rows = list(depths)
    return Depth.of({name: sum(getattr(row, name) for row in rows) for name in DEPTHS}, rows)
