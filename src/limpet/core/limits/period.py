"""Decides when a budget's period begins and ends: calendar minutes, hours, days, weeks and months in UTC."""

from __future__ import annotations

from typing import Final, Literal, get_args

Period = Literal["minute", "hour", "day", "week", "month"]
PERIODS: Final[tuple[str, ...]] = get_args(Period)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


def began_ms(period: Period, now_ms: int) -> int:
    """When the period began that `now_ms` is in; weeks begin on Mondays.

    >>> began_ms("day", 1_700_000_000_000)
    1699920000000
    """
    if period == "minute":
        return now_ms - now_ms % MINUTE_MS
    if period == "hour":
        return now_ms - now_ms % HOUR_MS
    day = now_ms // DAY_MS
    if period == "week":
        day -= (day + 3) % 7  # the first day of 1970 was a Thursday
    elif period == "month":
        day -= _day_of_month(day) - 1
    return day * DAY_MS


def ends_ms(period: Period, now_ms: int) -> int:
    """When the period ends that `now_ms` is in: the first instant of the next."""
    began = began_ms(period, now_ms)
    if period == "minute":
        return began + MINUTE_MS
    if period == "hour":
        return began + HOUR_MS
    if period == "month":
        return began_ms("month", began + 31 * DAY_MS)  # in the next month, whatever day that is
    return began + (7 if period == "week" else 1) * DAY_MS


def _day_of_month(day: int) -> int:
    """1 to 31, for a day counted from 1970: integers only, so that engines without a calendar do the same."""
    of_era = (day + 719_468) % 146_097  # days since a 1 March that begins 400 years
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)  # days since 1 March
    month = (5 * of_year + 2) // 153
    return of_year - (153 * month + 2) // 5 + 1
