"""Decides which instant a local time is in a time zone, where clocks jump forward and back."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from limpet.core.errors import InvalidOption
from limpet.core.tasks.naming import did_you_mean

_OF_THE_MACHINE: Final = {"localtime", "posixrules", "Factory"}  # files of the database that are no zones


class Zone:
    """A time zone. Instants are seconds since 1970 in UTC, local times the same on the wall clock.

    >>> Zone("Europe/Berlin").local(0)  # 01:00
    3600
    """

    __slots__ = ("_tz", "key", "never_changes")

    def __init__(self, key: str) -> None:
        self.key = key
        self.never_changes = key == "UTC"  # works without a database, and spares everyone else the arithmetic
        self._tz: tzinfo = UTC if self.never_changes else _loaded(key)

    def offset(self, at_s: int) -> int:
        """How far the wall clock is ahead of UTC at an instant."""
        return _seconds(datetime.fromtimestamp(at_s, self._tz))

    def local(self, at_s: int) -> int:
        """What the wall clock shows at an instant."""
        return at_s + self.offset(at_s)

    def instant(self, local_s: int) -> int:
        """When the wall clock first shows `local_s`; if it never does, the instant at which it jumps over it."""
        before = self._first_offset(local_s)
        found = local_s - before
        after = self.offset(found)
        jump = self.change(local_s - after, found)
        return found if jump is None else jump

    def repeated_until(self, at_s: int) -> int:
        """The local time up to which the wall clock, at an instant of the second time round, only repeats itself."""
        before = self._first_offset(self.local(at_s))
        first_time_s = self.local(at_s) - before
        change = self.change(first_time_s, at_s)
        return self.local(at_s) if change is None else change + before

    def change(self, after_s: int, until_s: int) -> int | None:
        """The first instant in (after, until] with another offset than `after_s` has, if the two ends differ.

        No zone has had two changes within a week since 1970, so two ends that agree, days apart, hide none.
        """
        offset = self.offset(after_s)
        if offset == self.offset(until_s):
            return None
        while until_s - after_s > 1:
            middle = (after_s + until_s) // 2
            if self.offset(middle) == offset:
                after_s = middle
            else:
                until_s = middle
        return until_s

    def moment(self, at_ms: int) -> datetime:
        """An instant as an aware datetime of this zone, for people."""
        return datetime.fromtimestamp(at_ms // 1000, self._tz).replace(microsecond=at_ms % 1000 * 1000)

    def _first_offset(self, local_s: int) -> int:
        """The offset of a local time the first time round, or of the time before a jump that leaves it out."""
        return _seconds(datetime.fromtimestamp(local_s, UTC).replace(tzinfo=self._tz))


def key_of(tz: object) -> str:
    """The name of a time zone from what people write: its name, a ZoneInfo, or datetime.UTC."""
    if isinstance(tz, ZoneInfo) and tz.key:
        return tz.key
    if tz is UTC:
        return "UTC"
    if isinstance(tz, str):
        return tz
    raise InvalidOption(f"tz={tz!r:.80} is not a time zone", fix='pass a name such as "Europe/Paris"')


def _loaded(key: str) -> ZoneInfo:
    if key not in _OF_THE_MACHINE:
        try:
            return ZoneInfo(key)
        except (ValueError, OSError, LookupError):  # a path, a folder, nothing of that name
            pass
    known = available_timezones() - _OF_THE_MACHINE
    if not known:
        raise InvalidOption(
            f"tz={key!r:.80} cannot be looked up: this system has no time zone database",
            fix='pip install tzdata, or install the system\'s package "tzdata"; tz="UTC" works without',
        )
    raise InvalidOption(f"tz={key!r:.80} is not a time zone", fix=_nearest(key, known))


def _nearest(key: str, known: set[str]) -> str:
    same = [name for name in known if name.lower() == key.lower() or name.lower().endswith(f"/{key.lower()}")]
    if same:
        return f"did you mean {min(same)!r}?"
    hint = did_you_mean(key, known)
    return hint if hint.startswith("did") else 'pass a name of the IANA database, such as "Europe/Paris"'


def _seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    return 0 if offset is None else offset.days * 86_400 + offset.seconds
