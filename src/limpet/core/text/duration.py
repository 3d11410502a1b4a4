"""Decides how people's durations and instants become integer milliseconds, and how those are written back."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from limpet.core.errors import InvalidOption

Duration = int | float | timedelta | str

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern}\s*)+")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_MS: Final = 100 * 366 * 86_400_000  # a century: anything longer is a unit mistaken for another
LONGEST_WAIT_MS: Final = 3_653 * 86_400_000  # ten years: what a function or a header says beyond that is a mistake
_FIX: Final = 'seconds as a number, a timedelta, or text such as "250ms", "30s", "5m" or "1h30m"'


def to_ms(value: Duration, *, what: str) -> int:
    """Milliseconds of a public duration; `what` names the option in the refusal."""
    if isinstance(value, bool):
        raise InvalidOption(f"{what}={value!r} is not a duration", fix=f"pass {_FIX}")
    if isinstance(value, int | float):
        seconds: float = value
    elif isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str):
        seconds = _text_ms(value, what) / 1000
    else:
        raise InvalidOption(f"{what}={value!r} is not a duration", fix=f"pass {_FIX}")
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidOption(f"{what}={value!r} is not a duration of zero or more", fix=f"pass {_FIX}")
    if seconds * 1000 > _LONGEST_MS:
        raise InvalidOption(
            f"{what}={value!r} is longer than a century", fix="durations are in seconds, not milliseconds"
        )
    ms = round(seconds * 1000)
    # Rounding a positive duration to nothing would turn "soon" into "at once, for ever".
    return ms if ms or not seconds else 1


def bounded_ms(ms: object, otherwise: int | None = None) -> int | None:
    """A wait that code of others computed, between now and ten years; `otherwise` for what is no wait at all."""
    if not isinstance(ms, int | float) or not 0 <= ms < math.inf:  # NaN is nowhere
        return otherwise
    return round(min(ms, LONGEST_WAIT_MS))


def _text_ms(text: str, what: str) -> float:
    stripped = text.strip().lower()
    try:
        return float(stripped) * 1000
    except ValueError:
        pass
    if not _WHOLE.fullmatch(stripped):
        raise InvalidOption(f"{what}={text!r} is not a duration", fix=f"pass {_FIX}")
    return sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(stripped))


def instant_ms(moment: datetime, *, what: str = "at") -> int:
    """Milliseconds since 1970 of an aware datetime; a naive one is refused, since its zone is unknown."""
    if not isinstance(moment, datetime):
        raise InvalidOption(f"{what}={moment!r} is not a datetime", fix="pass an aware datetime")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidOption(
            f"{what}={moment!r} has no time zone", fix="use datetime.now(UTC) or add tzinfo=ZoneInfo(...)"
        )
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except OverflowError:
        raise InvalidOption(f"{what}={moment!r} is beyond the calendar in UTC", fix="choose a nearer year") from None


def ago_ms(moment: datetime, now_ms: int) -> int:
    """How long ago an instant was; 0 for one to come."""
    return max(0, now_ms - instant_ms(moment))


def text_of_ms(ms: int) -> str:
    """A duration for people: "250ms", "1.5s", "5m", "1h30m", "2d4h"; at most two units, rounded down."""
    if ms < 0:
        return f"-{text_of_ms(-ms)}"
    if ms < 1_000:
        return f"{ms}ms"
    if ms < 60_000:
        return f"{ms // 100 / 10:g}s"
    parts: list[str] = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        count, rest = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
            ms = rest
        elif parts:
            break
        if len(parts) == 2:
            break
    return "".join(parts)


def iso(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds, as JSON and the CLI show instants."""
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
