"""Decides how counts of attempts are kept for weeks: by minute and by hour, each in a place that is used again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from limpet.core.jobs.minute import Key, Tally
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Control, Counts

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
MINUTES_OF_HOURS: Final = 49  # hours whose minutes are kept: two days, and the one that is being filled
HOURS_OF_DAYS: Final = 36  # days whose hours are kept: 35, and the one that is being filled
MOST_LINES: Final = 200  # tasks of queues that are told apart: the busiest
MOST_QUEUES: Final = 200  # queues of which depths, and the sum of other tasks, are kept
OTHER: Final = ""  # stands for all other tasks of a queue, and for all other queues

KIND: Final = "rollup"
PARTS: Final = f"{KIND}:parts"  # the kind of the controls in which workers write what they have counted lately
MARK: Final = (KIND, "mark")  # says how far minutes and hours are written
PART_MINUTES: Final = 4  # that a worker's part holds: the open one, and those that may not be written yet
IDLE_MINUTES: Final = 10  # a part that was not written to for so long is free for another worker
SETTLED_MS: Final = 10_000  # a minute is written so long after its end: what is late comes within a call's deadline


DEPTHS: Final = ("blocked", "scheduled", "ready", "running", "dead")  # the states of which depths are kept


class Depth(Struct, frozen=True, array_like=True):
    """Where the jobs of one queue were."""

    blocked: int = 0
    scheduled: int = 0
    ready: int = 0
    running: int = 0
    dead: int = 0
    oldest_ms: int | None = None  # the age of the oldest ready job; None: none is ready

    def peak(self, other: Depth) -> Depth:
        """The highest of both, number by number."""
        return Depth.of({name: max(getattr(self, name), getattr(other, name)) for name in DEPTHS}, (self, other))

    @classmethod
    def of(cls, counts: Mapping[str, int], depths: Iterable[Depth]) -> Depth:
        """These counts, with the age of the oldest of all."""
        ages = [depth.oldest_ms for depth in depths if depth.oldest_ms is not None]
        return cls(**counts, oldest_ms=max(ages, default=None))

    @property
    def total(self) -> int:
        """Its jobs that are not finished."""
        return self.blocked + self.scheduled + self.ready + self.running + self.dead


class Look(Struct, frozen=True, omit_defaults=True):
    """What the store's own counters said. They miss nothing, whatever is killed."""

    at_ms: int
    enqueued: int = 0  # ever, as all of these
    succeeded: int = 0
    cancelled: int = 0
    discarded: int = 0
    lost: int = 0
    stale: int = 0
    depths: dict[str, Depth] = {}
    whole: bool = True  # False: of some queues only, so the counters are not known

    @classmethod
    def of(cls, counts: Counts, now_ms: int) -> Look:
        """The counters of now; of many queues those with the most jobs that are not finished."""
        depths = {}
        for view in counts.queues:
            oldest_ms = None if view.oldest_ready_at_ms is None else max(0, now_ms - view.oldest_ready_at_ms)
            states = {name: view.counts.get(State(name), 0) for name in DEPTHS}
            depths[view.queue] = Depth(**states, oldest_ms=oldest_ms)
        names = sorted(depths, key=lambda name: (-depths[name].total, name))
        kept = {name: depths[name] for name in names[:MOST_QUEUES]}
        ever = {name: getattr(counts, name) for name in EVER}
        return cls(now_ms, **ever, depths=kept, whole=counts.whole)

    def after(self, earlier: Look) -> Look:
        """The later counters, with the highest depths of both."""
        depths = dict(earlier.depths)
        for name, depth in self.depths.items():
            depths[name] = depth.peak(depths[name]) if name in depths else depth
        return msgspec.structs.replace(self, depths=depths)


EVER: Final = ("enqueued", "succeeded", "cancelled", "discarded", "lost", "stale")

Line = tuple[str, str, Tally]  # queue, task, and how its attempts ended


class Rollup(Struct, frozen=True, omit_defaults=True):
    """What ended in one minute or hour, and what the counters said at its end."""

    at: int  # the number of the minute, or hour, since 1970
    lines: list[Line] = []
    look: Look | None = None

    @classmethod
    def of(cls, at: int, lines: Iterable[Line], looks: Iterable[Look | None] = ()) -> Rollup:
        """Their sum, in which the busiest tasks stand alone."""
        last = None
        for look in looks:
            if look is not None:
                last = look if last is None else look.after(last)
        return cls(at, bounded(added(lines)), last)

    def within(self, queues: frozenset[str]) -> Rollup:
        """What of it is about these queues."""
        look = self.look
        if look is not None:
            depths = {name: depth for name, depth in look.depths.items() if name in queues}
            look = Look(look.at_ms, depths=depths, whole=False)
        return Rollup(self.at, [line for line in self.lines if line[0] in queues], look)


class Part(Struct, frozen=True):
    """What one worker has counted in the last minutes."""

    session: str
    minutes: dict[int, list[Line]]

    @property
    def newest(self) -> int:
        """The last minute that it is about."""
        return max(self.minutes, default=0)

    def within(self, queues: frozenset[str]) -> Part:
        """What of it is about these queues."""
        return Part("", {at: [line for line in lines if line[0] in queues] for at, lines in self.minutes.items()})


class Mark(Struct, frozen=True):
    """How far all is written, and until when a worker is about to write more."""

    minute: int
    hour: int
    busy_until_ms: int = 0


R = TypeVar("R", Rollup, Part, Mark)


def written(kind: str, name: str, record: Rollup | Part | Mark) -> Control:
    """The control that holds a record, packed: thousands of them are kept."""
    return Control(kind, name, zlib.compress(msgspec.msgpack.encode(record), 1))


def read(control: Control, form: type[R]) -> R | None:
    """The record of a control; None when a later release has written something else."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(control.value), type=form)
    except (msgspec.MsgspecError, zlib.error):
        return None


def minutes_of(hour: int) -> str:
    """The kind of the controls that hold the minutes of an hour: those of 49 hours before are written over."""
    return f"{KIND}:minutes:{hour % MINUTES_OF_HOURS:02}"


def hours_of(day: int) -> str:
    """The kind of the controls that hold the hours of a day."""
    return f"{KIND}:hours:{day % HOURS_OF_DAYS:02}"


def minute_control(rollup: Rollup) -> Control:
    """A minute in its place."""
    return written(minutes_of(rollup.at // 60), f"{rollup.at % 60:02}", rollup)


def hour_control(rollup: Rollup) -> Control:
    """An hour in its place."""
    return written(hours_of(rollup.at // 24), f"{rollup.at % 24:02}", rollup)


def narrowed(control: Control, queues: frozenset[str]) -> Control:
    """A control of these kinds for someone who may see some queues only."""
    if control.kind == KIND:
        return control
    found = read(control, Part) if control.kind == PARTS else read(control, Rollup)
    if found is None:
        return msgspec.structs.replace(control, value=b"")
    return msgspec.structs.replace(control, value=written("", "", found.within(queues)).value)


def added(lines: Iterable[Line]) -> dict[Key, Tally]:
    """One tally for each task of each queue."""
    found: dict[Key, Tally] = {}
    for queue, task, tally in lines:
        mine = found.get((queue, task))
        if mine is None:
            found[queue, task] = tally.copy()
        else:
            mine.add(tally)
    return found


def bounded(tallies: Mapping[Key, Tally]) -> list[Line]:
    """The busiest tasks stand alone; the others are one tally for their queue, or for all queues beyond the bound."""
    keys = sorted(tallies, key=lambda key: (key[1] == OTHER, -tallies[key].total, key))
    kept = [(*key, tallies[key]) for key in keys[:MOST_LINES]]
    rest: dict[Key, Tally] = {}
    for key in keys[MOST_LINES:]:
        queue = key[0] if (key[0], OTHER) in rest or len(rest) < MOST_QUEUES else OTHER
        rest.setdefault((queue, OTHER), Tally()).add(tallies[key])
    return [*kept, *((*key, tally) for key, tally in rest.items())]
