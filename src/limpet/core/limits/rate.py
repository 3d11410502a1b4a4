"""Decides what a written rate, burst or ceiling means, and whether it can be stored."""

from __future__ import annotations

import re
from typing import Final

from limpet.core.errors import InvalidOption
from limpet.core.limits.unit import MICRO, MONEY, amount_of, amount_text
from limpet.core.text.duration import to_ms

_NUMBER: Final = r"\d{1,18}(?:\.\d{1,18})?"
_TIME: Final = rf"\s*/\s*({_NUMBER})?\s*(ms|s|m|h|d|sec|second|min|minute|hour|day)\s*"
_RATE: Final = re.compile(rf"\s*(\d{{1,18}}){_TIME}")
_BUCKET: Final = re.compile(rf"\s*({_NUMBER}){_TIME}")
_MOST: Final = 1_000_000
_SLOWEST_US: Final = 366 * 86_400 * 1_000_000
_MOST_BUCKET: Final = 1 << 40  # in thousandths, as a change of the rule has it, every engine still counts that exactly
# 142 years: until 2112 it empties before its level meets the end of counting, gate.MOST.
_LONGEST_FILL_US: Final = 1 << 52
# Of buckets: times the dearest job this stays far within 64 bits.
_SLOWEST_TOKENS_US: Final = 60_000_000
_SLOWEST_MONEY_US: Final = 200_000


def checked_ceiling(number: object, *, what: str) -> int:
    """How many may run at once, or go at once; `what` names the value."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidOption(f"{what}: the number must be an integer ≥ 1", fix="write a whole number")
    if number < 1:
        raise InvalidOption(f"{what}: the number must be ≥ 1", fix="write 1 or more; to stop the jobs, pause them")
    if number > _MOST:
        raise InvalidOption(f"{what} limits nothing", fix="leave it out")
    return number


def checked_burst(burst: int | None, count: int, interval_us: int, *, what: str) -> int:
    """How many may start together at a rate of `count` tokens: the same number, unless a burst is given."""
    most = count if burst is None else checked_ceiling(burst, what=what)
    if most > _MOST_BUCKET:
        raise InvalidOption(f"{what} lets more go at once than can be counted", fix=f"use a burst up to {_MOST:,}")
    if most * interval_us > _LONGEST_FILL_US:
        raise InvalidOption(f"{what} would fill up for more than a century", fix="use a smaller burst")
    return most


def parse_rate(text: str, *, what: str = "rate") -> tuple[int, int]:
    """("10/m") → (10, microseconds between two tokens). Rounded up: never faster than asked."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidOption(
            f"{what}={text!r:.80} cannot be read", fix='write "10/s", "10/m", "1000/h", "5/d" or "3/30s"'
        )
    count = int(match[1])
    if count < 1:
        raise InvalidOption(f"{what} must admit 1 or more, got {text!r}", fix="to stop the jobs, pause them")
    period_us = _period_us(match)
    if period_us > count * _SLOWEST_US:
        raise InvalidOption(f"{what}={text!r} is slower than one a year", fix="use a schedule instead of a limit")
    if not count <= period_us:
        raise InvalidOption(f"{what}={text!r} is more than a million per second", fix="leave the rate out")
    return count, -(-period_us // count)


def _period_us(match: re.Match[str]) -> int:
    """How long the time behind the slash is; a unit that is spelt out means its first letter."""
    unit = match[3] if match[3] == "ms" else match[3][0]
    return round(float(match[2] or 1) * to_ms(f"1{unit}", what="rate") * 1000)


def parse_bucket(unit: str, text: str) -> tuple[int, int]:
    """The rate of a bucket, in what its unit is stored in: ("usd", "5/h") → (5000000, 720)."""
    what = f"the bucket {unit}={text!r}"
    match = _BUCKET.fullmatch(text) if isinstance(text, str) else None
    if match is None or float(match[2] or 1) <= 0:
        example = "5/h" if unit == MONEY else "200000/m"
        raise InvalidOption(f"{what} cannot be read", fix=f'write an amount and a time, such as "{example}"')
    count = amount_of(unit, match[1], what=f"the bucket {unit}", most=_MOST_BUCKET // (MICRO if unit == MONEY else 1))
    period_us = _period_us(match)
    if count < 1:
        raise InvalidOption(
            f"{what}: the number must be ≥ 1", fix="use a positive amount; to stop the jobs, pause them"
        )
    if period_us > count * (_SLOWEST_MONEY_US if unit == MONEY else _SLOWEST_TOKENS_US):
        raise InvalidOption(f"{what} is too slow to be kept as a rate", fix="use a Budget for so little")
    interval_us = -(-period_us // count)
    if interval_us * count > _LONGEST_FILL_US:
        raise InvalidOption(f"{what} would fill up for more than a century", fix="use a shorter time")
    if interval_us * count > period_us * 1.1:
        # Rates are kept as whole microseconds per token (of money: per millionth of a dollar), never faster than asked.
        slow, fast = (amount_text(unit, period_us // each) for each in (interval_us, max(1, interval_us - 1)))
        raise InvalidOption(
            f"{what} lies between two rates that can be kept", fix=f"use {slow} or {fast} for that time"
        )
    return count, interval_us
