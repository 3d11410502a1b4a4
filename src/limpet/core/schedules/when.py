"""What people write to say when a task runs: Cron, Every and Once, with what becomes of their ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import islice
from typing import Final

from limpet.core.errors import InvalidOption
from limpet.core.schedules.policy import Overlap, TickPolicy
from limpet.core.schedules.rule import AnyRule, CronRule, EveryRule, OnceRule
from limpet.core.schedules.zone import Zone, key_of
from limpet.core.text.duration import Duration, instant_ms, to_ms

_SHORTEST_MS: Final = 1_000  # each tick is a write of the engine; what is more frequent is a loop inside a task


@dataclass(frozen=True, kw_only=True)
class When:
    """What the three kinds share: `rule` says when ticks are, `policy` what becomes of them.

    `overlap` is "skip" (a tick during a run has none), "queue_one", "allow" or "cancel_running". `catch_up` says how
    many ticks that no worker was there for fire late: "skip", "last", "all", or a number. `jitter` spreads each tick
    over that many seconds, never beyond the next tick. A tick that could not start within `expires_in` has no run.
    """

    overlap: Overlap | str = "skip"
    catch_up: str | int = "last"
    jitter: Duration = 0
    expires_in: Duration | None = None
    rule: AnyRule = field(init=False, repr=False, compare=False)
    policy: TickPolicy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", self._rule())
        object.__setattr__(self, "policy", TickPolicy.of(self.overlap, self.catch_up, self.jitter, self.expires_in))

    def _rule(self) -> AnyRule:
        raise NotImplementedError

    def describe(self) -> str:
        """When it runs, in words: "every weekday at 09:00 Europe/Berlin"."""
        return self.rule.describe()

    def upcoming(self, after: datetime, count: int = 5) -> list[datetime]:
        """The next runs after an instant, jitter left aside."""
        zone = Zone(self.rule.tz if isinstance(self.rule, CronRule) else "UTC")
        return [zone.moment(tick) for tick in islice(self.rule.iterate(instant_ms(after, what="after")), count)]


@dataclass(frozen=True)
class Cron(When):
    """Runs at the times of a cron expression: five fields, or six with the seconds first, or an alias.

    Clock changes: "at 02:30" runs once a day, at the jump when that time is left out, the first time when it comes
    twice; "every 15 minutes" (minute or hour begin with `*`) continues every 15 minutes.

    >>> Cron("0 9 * * MON-FRI", tz="Europe/Berlin").describe()
    'every weekday at 09:00 Europe/Berlin'
    """

    expr: str
    tz: str | tzinfo = "UTC"

    def _rule(self) -> CronRule:
        written = CronRule(self.expr, key_of(self.tz))
        return CronRule(written.ticks.expression.text, written.tz)  # " 0  8 * * *" is the same schedule, spaced out


@dataclass(frozen=True)
class Every(When):
    """Runs in equal steps of real time: at multiples of the interval since 1970 in UTC, or since `anchor`.

    The steps do not depend on when anything was started, so a deployment neither delays nor repeats a run.

    >>> Every("90s").describe()
    'every 1 minute 30 seconds'
    """

    interval: Duration
    anchor: datetime | None = None

    def _rule(self) -> EveryRule:
        every_ms = to_ms(self.interval, what="Every(interval)")
        if every_ms < _SHORTEST_MS:
            raise InvalidOption(
                f"Every({self.interval!r}) is more often than once a second", fix="use one second or more"
            )
        anchor_ms = 0 if self.anchor is None else instant_ms(self.anchor, what="anchor")
        return EveryRule(every_ms, anchor_ms)


@dataclass(frozen=True)
class Once(When):
    """Runs at one instant.

    >>> from datetime import UTC, datetime
    >>> Once(datetime(2030, 1, 1, tzinfo=UTC)).describe()
    'once at Tue 2030-01-01 00:00 UTC'
    """

    at: datetime

    def _rule(self) -> OnceRule:
        return OnceRule(instant_ms(self.at))
