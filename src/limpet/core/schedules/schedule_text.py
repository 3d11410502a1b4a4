"""Decides how the ticks of a schedule are told to people: "every weekday at 09:00 Europe/Berlin"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from limpet.core.schedules.expression import Expression
from limpet.core.schedules.zone import Zone
from limpet.core.text.duration import text_of_ms

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))
_MOST_TIMES: Final = 6  # more than that are easier to read as "at minutes … of the hours …"


def of_expression(expression: Expression, tz: str) -> str:
    """A cron expression: its days, its times, and the zone where that matters."""
    _, _, hours, days, months, weekdays = expression.fields
    day, time = _days(expression), _times(expression)
    if time.startswith("at ") and time[5] == ":":
        said = f"{day or 'every day'} {time}"
    else:
        said = f"{time}, {day}" if day else time
    everywhere = (len(hours), len(days), len(months), len(weekdays)) == (24, 31, 12, 7)
    if everywhere:
        return said
    return f"{said} {tz}" if said[-3] == ":" else f"{said}, {tz}"  # a time and its zone are one thing


def of_interval(every_ms: int, anchor_at_ms: int) -> str:
    """Equal steps of time, exactly."""
    parts, rest = [], every_ms
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append((count, unit))
    if len(parts) == 1 and parts[0][0] == 1:
        said = f"every {parts[0][1]}"
    else:
        said = "every " + " ".join(f"{count} {unit}{'s' if count > 1 else ''}" for count, unit in parts)
    return said if anchor_at_ms % every_ms == 0 else f"{said}, counted from {of_instant(anchor_at_ms, Zone('UTC'))}"


def of_instant(at_ms: int, zone: Zone) -> str:
    """An instant on the wall clock of a zone; its abbreviation tells the two halves of a repeated hour apart."""
    moment = zone.moment(at_ms)
    clock = moment.strftime("%H:%M:%S" if moment.second else "%H:%M")
    return f"{_WEEKDAYS[moment.isoweekday() % 7][:3]} {moment.date().isoformat()} {clock} {moment.tzname()}"


def of_tick(at_ms: int, zone: Zone, now_ms: int) -> str:
    """A tick and how far away it is.

    >>> of_tick(90_000_000, Zone("UTC"), 0)
    'Fri 1970-01-02 01:00 UTC, in 1d1h'
    """
    away = text_of_ms(abs(at_ms - now_ms))
    return f"{of_instant(at_ms, zone)}, {f'{away} ago' if at_ms < now_ms else f'in {away}'}"


def _times(expression: Expression) -> str:
    seconds, minutes, hours = expression.fields[:3]
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        return f"at {_joined([_clock(h, m, s) for h in hours for m in minutes for s in seconds])}"
    if seconds == (0,) and minutes == (0,):
        return _whole_hours(hours)
    by_second, by_minute = _rhythm(seconds, 60, "second"), _rhythm(minutes, 60, "minute")
    if by_second and len(minutes) == 60:
        return f"{by_second}{_hours_within(hours)}"
    if by_second:
        return f"{by_second} in {_counted(minutes, 'minute')}{_hours_of(hours)}"
    at_second = "" if seconds == (0,) else f"at {_counted(seconds, 'second')}"
    if by_minute:
        return f"{at_second}{', ' if at_second else ''}{by_minute}{_hours_within(hours)}"
    at_minute = f"{at_second} of " if at_second else "at "
    return f"{at_minute}{_counted(minutes, 'minute')}{_hours_of(hours)}"


def _whole_hours(hours: Sequence[int]) -> str:
    rhythm = _rhythm(hours, 24, "hour")
    if rhythm:
        return rhythm
    if _is_run(hours):
        return f"every hour from {_clock(hours[0], 0)} to {_clock(hours[-1], 0)}"
    return f"at {_joined([_clock(hour, 0) for hour in hours])}"


def _hours_within(hours: Sequence[int]) -> str:
    if len(hours) == 24:
        return ""
    if _is_run(hours):
        return f" from {_clock(hours[0], 0)} to {_clock(hours[-1], 59)}"
    return f" in {_counted(hours, 'hour')}"


def _hours_of(hours: Sequence[int]) -> str:
    rhythm = _rhythm(hours, 24, "hour")
    if rhythm:
        return f" of {rhythm}" if len(hours) == 24 else f", {rhythm}"
    return f" of {_counted(hours, 'hour')}"


def _days(expression: Expression) -> str:
    """The days that match; nothing when all do."""
    _, _, _, days, months, weekdays = expression.fields
    by_number, by_weekday = len(days) < 31, len(weekdays) < 7
    of_months = "every month" if len(months) == 12 else _listed(months, lambda month: _MONTHS[month - 1])
    in_months = "" if len(months) == 12 else f" in {of_months}"
    numbered = f"on {_counted(days, 'day')} of {of_months}"
    if expression.either_day and by_number and by_weekday:
        return f"{numbered} or {_every_weekday(weekdays)}{in_months}"
    if expression.either_day or not (by_number or by_weekday):
        return f"every day{in_months}" if in_months else ""
    if by_number and by_weekday:
        return f"{numbered} if that is a {_joined([_WEEKDAYS[day] for day in weekdays], 'or')}"
    return numbered if by_number else f"{_every_weekday(weekdays)}{in_months}"


def _every_weekday(weekdays: Sequence[int]) -> str:
    if tuple(weekdays) == (1, 2, 3, 4, 5):
        return "every weekday"
    monday_first = sorted(day or 7 for day in weekdays)
    return f"every {_listed(monday_first, lambda day: _WEEKDAYS[day % 7])}"


def _rhythm(values: Sequence[int], size: int, unit: str) -> str:
    """ "every 15 minutes", for values that are equally far apart around the clock beginning at 0."""
    step = size // len(values)
    if tuple(values) != tuple(range(0, size, step)) or size % step or len(values) == 1:
        return ""
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _counted(values: Sequence[int], unit: str) -> str:
    """ "minute 5", "minutes 5 and 20", "minutes 0 to 29"."""
    return f"{unit}{'s' if len(values) > 1 else ''} {_listed(values, str)}"


def _listed(values: Sequence[int], name: Callable[[int], str]) -> str:
    """ "1, 3 and 5 to 9": neighbours are told as a range from three on."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    said = []
    for run in runs:
        said += [f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else [name(value) for value in run]
    return _joined(said)


def _joined(parts: Sequence[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _is_run(values: Sequence[int]) -> bool:
    return values[-1] - values[0] == len(values) - 1


def _clock(hour: int, minute: int, second: int = 0) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"
