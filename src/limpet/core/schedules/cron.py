"""Decides at which instants a cron expression ticks in a time zone, clock changes included.

An expression whose minute or hour begins with `*` is an interval ("every 15 minutes"): it ticks whenever the wall clock
shows one of its times, so an hour that is left out has no ticks and an hour that comes twice has them twice, as far
apart as ever. Any other expression names times of day ("at 02:30"): each ticks once; a time that is left out ticks at
the instant of the jump, together with all others left out, and a time that comes twice ticks the first time. Seconds
make no difference. This is the rule of Debian's cron, for jumps of any length.
"""

from __future__ import annotations

from typing import Final

from limpet.core.schedules.expression import DAY_S, Expression
from limpet.core.schedules.zone import Zone

_NEAR_S: Final = 2 * DAY_S  # a jump is a day at most (where the date line moved), and jumps are a week apart


class CronTicks:
    """The ticks of one expression in one zone, in whole seconds."""

    __slots__ = ("expression", "zone")

    def __init__(self, expression: Expression, zone: Zone) -> None:
        self.expression = expression
        self.zone = zone

    def after(self, at_s: int) -> int | None:
        """The first tick after an instant."""
        if self.zone.never_changes:
            return self.expression.first_from(at_s + 1)
        return self._named_after(at_s) if self.expression.follows_clock else self._elapsed_after(at_s)

    def _named_after(self, at_s: int) -> int | None:
        local_s = self.expression.first_from(self.zone.local(at_s) + 1)
        if local_s is None:
            return None
        found = self.zone.instant(local_s)
        if found > at_s:
            return found
        # The clock was put back, and it is between the two instants that show the same time.
        local_s = self.expression.first_from(self.zone.repeated_until(at_s))
        return None if local_s is None else self.zone.instant(local_s)

    def _elapsed_after(self, at_s: int) -> int | None:
        start = at_s + 1
        while True:
            offset = self.zone.offset(start)
            local_s = self.expression.first_from(start + offset)
            if local_s is None:
                return None
            found = local_s - offset
            change = self.zone.change(start, min(found, start + _NEAR_S))
            if change is not None:
                start = change
            elif found <= start + _NEAR_S:
                return found
            else:
                # Nothing until the clock first shows that time, however it is changed meanwhile.
                start = self.zone.instant(local_s) - DAY_S
