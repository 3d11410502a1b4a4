"""Decides what answers say of limits: how long "too many requests" means, and how much is allowed at all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from msgspec import Struct

from limpet.core.endings.answer import bodies_of, headers_of, peek
from limpet.core.gate import FULL_PACE, GateRule
from limpet.core.text.duration import LONGEST_WAIT_MS

_GO: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|μs|ms|s|m|h|d)")
_GO_MS: Final = {
    "ns": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7,
}  # fmt: skip
# OpenAI and its like name a bucket, GitHub and others have one without a name, Anthropic puts the name first.
_RESET: Final = re.compile(r"(?:x-)?ratelimit-reset(?:-[\w-]+)?|anthropic-[\w-]+-reset")
_ALLOWED: Final = ("x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit")
_LONGEST_LESSON_MS: Final = 3_600_000  # an answer that is not an error holds a gate no longer than this
_MINUTE_US: Final = 60_000_000
_SINCE_1970_S: Final = 1_000_000_000  # no provider asks for thirty years: such a number is an instant
_ITEMS: Final = 20  # of a list of details
_DEPTH: Final = 4


class Lesson(Struct, frozen=True):
    """What an answer says about the provider's limits."""

    hold_ms: int = 0  # nothing is left before that
    per_minute: int | None = None  # requests that it allows


def lesson_of(said: object, now_ms: int | None = None) -> Lesson:
    """What a response, its headers or an error teach; nothing when they cannot be read."""
    headers = headers_of(said)
    allowed = [number for name in _ALLOWED if (number := _number(headers.get(name, ""))) is not None and number >= 1]
    hold_ms = min(_LONGEST_LESSON_MS, retry_after_ms(said, now_ms) or 0)
    return Lesson(hold_ms, int(min(allowed)) if allowed else None)


def ceiling_of(rule: GateRule, per_minute: int) -> int | None:
    """How fast a gate may go when the provider allows this rate, in thousandths; None when it does not adapt.

    What is allowed beyond the declared rate changes nothing: some name what they allow per day.
    """
    if rule.floor is None or rule.interval_us is None:
        return None
    return max(1, min(FULL_PACE, per_minute * rule.interval_us * FULL_PACE // _MINUTE_US))


def retry_after_ms(error: object, now_ms: int | None = None) -> int | None:
    """The longest wait that an error, or the answer behind it, asks for; None when it names none.

    Instants are read against the answer's own Date, so that our clock does not matter; else against `now_ms`.
    """
    try:
        return _named_ms(error, now_ms)
    except Exception:
        return None  # an answer that cannot be read names no time


def _named_ms(error: object, now_ms: int | None) -> int | None:
    headers = headers_of(error)
    now_ms = instant_of(headers.get("date", "")) or now_ms
    found = [_stated_ms(headers, now_ms), *_resets_ms(headers, now_ms), *_in_body_ms(error)]
    waits = [wait for wait in found if wait is not None and wait >= 0]
    return math.ceil(min(max(waits), LONGEST_WAIT_MS)) if waits else None


def _stated_ms(headers: Mapping[str, str], now_ms: int | None) -> float | None:
    exact = _number(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact
    return _wait_ms(headers.get("retry-after", ""), now_ms)


def _resets_ms(headers: Mapping[str, str], now_ms: int | None) -> Iterator[float | None]:
    """When each bucket refills, for the buckets that are empty: a full one does not hold us back."""
    for name, text in headers.items():
        if _RESET.fullmatch(name) and _is_nothing(headers.get(name.replace("reset", "remaining"), "")):
            yield _wait_ms(text, now_ms)


def _in_body_ms(error: object) -> Iterator[float | None]:
    """Google's RetryInfo, as JSON in the body or as a message in `details`."""
    for body in bodies_of(error):
        for detail in _details(body, _DEPTH):
            yield _delay_ms(detail)


def _details(place: Any, depth: int) -> Iterator[Any]:
    """The details of an answer's error, or of each of several errors."""
    if isinstance(place, list | tuple) and depth:
        for item in place[:_ITEMS]:
            yield from _details(item, depth - 1)
    elif isinstance(place, Mapping) and depth:
        yield place
        for name in ("error", "details"):
            yield from _details(place.get(name), depth - 1)
    else:
        yield place


def _delay_ms(detail: Any) -> float | None:
    try:
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else peek(detail, "retry_delay")
        if isinstance(delay, str):
            return _wait_ms(delay, None)
        if isinstance(delay, timedelta):
            return delay / timedelta(milliseconds=1)
        return None if delay is None else float(delay.seconds * 1000 + delay.nanos / 1e6)
    except Exception:
        return None  # one that cannot be read hides no other


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _is_nothing(text: str) -> bool:
    """Whether that is a number, and nothing is left."""
    try:
        return float(text) <= 0
    except ValueError:
        return False


def _wait_ms(text: str, now_ms: int | None) -> float | None:
    """The wait that a header names, or the one until the instant that it names."""
    wait_ms, at_ms = named_time(text)
    if at_ms is None or now_ms is None:
        return wait_ms
    return max(0.0, at_ms - now_ms)


def named_time(text: str) -> tuple[float | None, int | None]:
    """A wait or an instant (ms): seconds, a Go duration ("6m0s"), a date, or seconds since 1970.

    >>> named_time("6m0s"), named_time("12, 30"), named_time("soon")
    ((360000.0, None), (30000.0, None), (None, None))
    """
    text = text.strip()
    if text and re.fullmatch(rf"(?:{_GO.pattern})+", text):
        return sum(float(number) * _GO_MS[unit] for number, unit in _GO.findall(text)), None
    several = [_number(each) for each in text.split(",")]  # two proxies may have said it, one after the other
    if None in several:
        return None, instant_of(text)
    longest = max(each for each in several if each is not None)
    return (longest * 1000, None) if longest < _SINCE_1970_S else (None, _since_1970_ms(longest))


def _since_1970_ms(number: float) -> int:
    """Seconds, or milliseconds when it would be too far away otherwise."""
    return round(number if number >= _SINCE_1970_S * 1000 else number * 1000)


def instant_of(text: str) -> int | None:
    """The instant (ms since 1970) that an RFC 3339 or an HTTP date names; None when it is neither."""
    moment: datetime | None = None
    try:
        moment = datetime.fromisoformat(text.upper())  # RFC 3339 has small letters, too
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return round(moment.timestamp() * 1000)
    except (OverflowError, ValueError):
        return None
