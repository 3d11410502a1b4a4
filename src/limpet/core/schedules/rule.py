"""Decides which instants are the ticks of a schedule: the three kinds of rules, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from limpet.core.schedules import schedule_text
from limpet.core.schedules.cron import CronTicks
from limpet.core.schedules.expression import Expression
from limpet.core.schedules.zone import Zone


class Rule(Struct, frozen=True, omit_defaults=True, dict=True):
    """A set of instants, called ticks, that every process works out alike. Ticks begin in 1970.

    A kind of rule says what comes next (`_after`) and how people call it (`describe`); the rest follows.
    """

    def _after(self, at_ms: int) -> int | None:
        raise NotImplementedError

    def describe(self) -> str:
        """When it ticks, in words."""
        raise NotImplementedError

    def after(self, at_ms: int) -> int | None:
        """The first tick after an instant; None when none is left."""
        return self._after(max(at_ms, -1))

    def iterate(self, after_ms: int) -> Iterator[int]:
        """The ticks after an instant, in order."""
        tick = self.after(after_ms)
        while tick is not None:
            yield tick
            tick = self.after(tick)

    def between(self, after_ms: int, until_ms: int, limit: int) -> list[int]:
        """The first ticks in (after, until], `limit` at most."""
        ticks: list[int] = []
        for tick in islice(self.iterate(after_ms), limit):
            if tick > until_ms:
                break
            ticks.append(tick)
        return ticks

    def latest(self, after_ms: int, until_ms: int) -> int | None:
        """The last tick in (after, until], found by halving, however many there are."""
        if self._within(after_ms, until_ms) is None:
            return None
        back_ms = 1_000
        while (found := self._within(max(after_ms, until_ms - back_ms), until_ms)) is None:
            back_ms *= 2
        high = until_ms  # no tick lies in (high, until]
        while (following := self._within(found, until_ms)) is not None:
            middle = (following + high) // 2
            beyond = self._within(middle, until_ms)
            if beyond is None:
                found, high = following, middle
            else:
                found = beyond
        return found

    def _within(self, after_ms: int, until_ms: int) -> int | None:
        tick = self.after(after_ms)
        return None if tick is None or tick > until_ms else tick


class CronRule(Rule, frozen=True, tag="cron"):
    """Ticks at the local times of a cron expression."""

    expr: str
    tz: str = "UTC"

    @cached_property
    def ticks(self) -> CronTicks:
        """The expression, read; what cannot be read is refused here."""
        return CronTicks(Expression(self.expr), Zone(self.tz))

    def _after(self, at_ms: int) -> int | None:
        tick_s = self.ticks.after(at_ms // 1000)
        return None if tick_s is None else tick_s * 1000

    def describe(self) -> str:
        """When it ticks, in words.

        >>> CronRule("0 9 * * MON-FRI", "Europe/Berlin").describe()
        'every weekday at 09:00 Europe/Berlin'
        """
        return schedule_text.of_expression(self.ticks.expression, self.tz)


class EveryRule(Rule, frozen=True, tag="every"):
    """Ticks in equal steps of real time before and after an anchor, whatever clocks show."""

    every_ms: Annotated[int, Meta(ge=1)]
    anchor_at_ms: int = 0

    def _after(self, at_ms: int) -> int | None:
        return at_ms + self.every_ms - (at_ms - self.anchor_at_ms) % self.every_ms

    def describe(self) -> str:
        """When it ticks, in words.

        >>> EveryRule(90_000).describe()
        'every 1 minute 30 seconds'
        """
        return schedule_text.of_interval(self.every_ms, self.anchor_at_ms)


class OnceRule(Rule, frozen=True, tag="once"):
    """Ticks at one instant and never again."""

    at_ms: int

    def _after(self, at_ms: int) -> int | None:
        return self.at_ms if at_ms < self.at_ms else None

    def describe(self) -> str:
        """When it ticks, in words.

        >>> OnceRule(0).describe()
        'once at Thu 1970-01-01 00:00 UTC'
        """
        return f"once at {schedule_text.of_instant(self.at_ms, Zone('UTC'))}"


AnyRule = CronRule | EveryRule | OnceRule
