"""Decides which local times a cron expression names, and finds the first of them from a given one on."""

from __future__ import annotations

from datetime import date
from typing import Final

from limpet.core.errors import InvalidOption
from limpet.core.schedules.field import FIELDS
from limpet.core.tasks.naming import did_you_mean

DAY_S: Final = 86_400
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * SUN",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_LAST_YEAR: Final = 9_998  # Python's calendar ends a year later, and a zone needs room around a date
_MOST_CHARS: Final = 1_000
_SHAPE: Final = 'write "minute hour day-of-month month day-of-week", with the seconds first when there are six'
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)  # the most that each month has


class Expression:
    """A cron expression, read once. Local times are whole seconds since 1970 on the wall clock, zones left aside.

    Both day fields must match when one of them begins with `*`; otherwise either is enough (as cron does).

    >>> Expression("0 9 * * MON-FRI").first_from(0)  # Thursday 1 January 1970
    32400
    """

    __slots__ = ("_days", "_months", "_next", "either_day", "fields", "follows_clock", "text")

    def __init__(self, text: str) -> None:
        self.text = _tidy(text)
        parts = _split(self.text)
        self.fields = tuple(_values(self.text, parts, index) for index in range(6))
        self.either_day = not parts[3].startswith("*") and not parts[5].startswith("*")
        # Cron's own line between "at 02:30" and "every 15 minutes", which differ when the clocks change.
        self.follows_clock = not parts[1].startswith("*") and not parts[2].startswith("*")
        seconds, minutes, hours, _, months, _ = self.fields
        self._next = (_steps(hours, 24), _steps(minutes, 60), _steps(seconds, 60))
        self._months = _steps(months, 13)
        self._days = self._day_masks()
        if not any(self._ever(month) for month in months):
            raise InvalidOption(
                f"Cron({text!r}) never fires: its months have no such day of month", fix="choose a day that exists"
            )

    def first_from(self, local_s: int) -> int | None:
        """The first local time at or after `local_s` that it names; None when the calendar ends before."""
        day, second = divmod(local_s, DAY_S)
        time = self._time_from(second)
        found = self._day_from(day)
        if found != day or time is None:
            time = self._time_from(0)
            found = self._day_from(day + 1) if found == day else found
        return None if found is None or time is None else found * DAY_S + time

    def _time_from(self, second: int) -> int | None:
        """The first second of a day, at or after `second`, that the three clock fields name."""
        next_hour, next_minute, next_second = self._next
        at_hour, rest = divmod(second, 3_600)
        at_minute, at_second = divmod(rest, 60)
        hour, minute = next_hour[at_hour], 0
        if hour == at_hour:
            minute = next_minute[at_minute]
            if minute == at_minute:
                second = next_second[at_second]
                if second >= 0:
                    return hour * 3_600 + minute * 60 + second
                minute = next_minute[at_minute + 1]
            if minute >= 0:
                return hour * 3_600 + minute * 60 + next_second[0]
            hour = next_hour[at_hour + 1]
        return None if hour < 0 else hour * 3_600 + next_minute[0] * 60 + next_second[0]

    def _day_from(self, day: int) -> int | None:
        """The first day since 1970, at or after `day`, that the three calendar fields name."""
        start = date.fromordinal(_EPOCH_DAY + day)
        year, month, least = start.year, start.month, start.day
        while year <= _LAST_YEAR:
            following = self._months[month]
            if following != month:
                year, month, least = (year, following, 1) if following > 0 else (year + 1, 1, 1)
                continue
            first = date(year, month, 1)
            left = self._days[_length(year, month)][first.weekday()] >> least
            if left:
                return first.toordinal() - _EPOCH_DAY + least + _lowest_bit(left) - 1
            year, month, least = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def _day_masks(self) -> dict[int, tuple[int, ...]]:
        """For a month of each length and first weekday (Monday is 0): the days that match, as bits."""
        days, weekdays = self.fields[3], self.fields[5]
        by_number = sum(1 << day for day in days)
        by_weekday = [sum(1 << day for day in range(1, 32) if (first + day) % 7 in weekdays) for first in range(7)]
        both = [by_number | mask if self.either_day else by_number & mask for mask in by_weekday]
        return {length: tuple(mask & (1 << length + 1) - 1 for mask in both) for length in (28, 29, 30, 31)}

    def _ever(self, month: int) -> bool:
        # Every month, a 29-day February too, begins on each weekday some time in 400 years.
        return any(self._days[_LENGTHS[month - 1]])


def _tidy(text: str) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > _MOST_CHARS:
        raise InvalidOption(f"Cron({text!r:.80}) is not a cron expression", fix=_SHAPE)
    return " ".join(text.split())


def _split(text: str) -> list[str]:
    """The six fields as written; an alias is spelled out, and five fields begin at second 0."""
    if text.startswith("@"):
        if text.lower() not in ALIASES:
            raise InvalidOption(f"Cron({text!r}) is not a known alias", fix=did_you_mean(text.lower(), ALIASES))
        text = ALIASES[text.lower()]
    parts = text.split()
    if len(parts) not in (5, 6):
        raise InvalidOption(f"Cron({text!r:.80}) has {len(parts)} fields instead of 5 or 6", fix=_SHAPE)
    return parts if len(parts) == 6 else ["0", *parts]


def _values(text: str, parts: list[str], index: int) -> tuple[int, ...]:
    try:
        return FIELDS[index].values(parts[index])
    except InvalidOption as refused:
        raise InvalidOption(f"Cron({text!r:.80}): {refused.message}", fix=refused.fix) from None


def _steps(values: tuple[int, ...], size: int) -> tuple[int, ...]:
    """For each number up to `size`: the first of `values` at or after it, or -1."""
    steps = [-1] * (size + 1)
    for number in range(size, -1, -1):
        steps[number] = number if number in values else steps[min(number + 1, size)]
    return tuple(steps)


def _length(year: int, month: int) -> int:
    if month == 2 and (year % 4 or (not year % 100 and year % 400)):
        return 28
    return _LENGTHS[month - 1]


def _lowest_bit(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
