"""Decides what a declared limit or breaker means as gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.gate import FULL_PACE, BreakerRule, GateRule
from limpet.core.limits.rate import checked_burst, checked_ceiling, parse_bucket, parse_rate
from limpet.core.limits.unit import PLAIN, checked_unit, stored_unit
from limpet.core.tasks.template import MAX_KEY_CHARS, Template
from limpet.core.text.duration import Duration, to_ms
from limpet.core.text.storable import is_storable

_TENTH: Final = FULL_PACE // 10
_HUNDREDFOLD: Final = 100
_SLOWEST_CLIMB_MS: Final = 86_400_000
_MOST_CALLS: Final = 1_000_000
_MOST_FAILURES: Final = 1_000  # a breaker that counts keeps the instant of each


@dataclass(frozen=True)
class Limit:
    """A ceiling shared by every job with the same key, over all workers: a rate, a concurrency, or both.

    `rate` counts jobs (or their plain cost). `buckets` are rates of other units under the same key, by unit; a job
    takes from them what its `cost=` says, and what `current_job().spent(...)` says corrects that.

    With `adaptive` the limit learns how fast it may go: half as fast after each pushback (a 429), and evenly faster
    again, so that it would take `climb` from a standstill to all that is declared. It never goes slower than a tenth
    of that, or than the rate that is given: `adaptive="50/m"`.

    >>> Limit("customer:{customer}", rate="10/m").rule("customer:acme").interval_us
    6000000
    >>> [rule.key for rule in Limit("openai", rate="500/m", buckets={"tokens": "200000/m"}).rules("openai")]
    ['limit:openai', 'limit:tokens:openai']
    """

    key: str
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    learns: bool = False
    buckets: Mapping[str, str] = field(default_factory=dict)
    adaptive: bool | str = False
    climb: Duration = 60
    template: Template = field(init=False, repr=False, compare=False)
    _interval_us: int | None = field(init=False, repr=False, compare=False)
    _burst: int = field(init=False, repr=False, compare=False)
    _buckets: tuple[tuple[str, int, int], ...] = field(init=False, repr=False, compare=False)
    _floor: int | None = field(init=False, repr=False, compare=False)
    _climb_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", Template(self.key))
        count, interval_us = (1, None) if self.rate is None else parse_rate(self.rate)
        if self.rate is None and self.concurrency is None and not self.learns and not self.buckets:
            raise InvalidOption(f"Limit({self.key!r}) limits nothing", fix='add rate="10/m" or concurrency=5')
        if self.concurrency is not None:
            checked_ceiling(self.concurrency, what=f"Limit({self.key!r}, concurrency={self.concurrency!r})")
        if self.burst is not None and self.rate is None:
            raise InvalidOption(f"Limit({self.key!r}, burst={self.burst}) has no rate", fix='add rate="10/m"')
        object.__setattr__(self, "_interval_us", interval_us)
        burst = checked_burst(self.burst, count, interval_us or 0, what=f"Limit({self.key!r}, burst={self.burst!r})")
        object.__setattr__(self, "_burst", burst)
        object.__setattr__(self, "_buckets", tuple(self._read_buckets()))
        object.__setattr__(self, "_floor", self._read_floor())
        object.__setattr__(self, "_climb_ms", self._read_climb())

    def __hash__(self) -> int:
        numbers = (self.rate, self.burst, self.concurrency, self.learns, self.adaptive)
        return hash((self.key, *numbers, tuple(self.buckets.items())))

    def _read_floor(self) -> int | None:
        """The slowest pace in thousandths; None when it does not adapt."""
        what = f"Limit({self.key!r}, adaptive={self.adaptive!r})"
        if self.adaptive is False:
            return None
        if self.rate is None and (self.concurrency is None or self.adaptive is not True):
            raise InvalidOption(f"{what} has no rate to adapt", fix='add rate="500/m", the fastest that it may go')
        if self.adaptive is True:
            return usual_floor(self._interval_us, self.concurrency)
        return slowest_floor(self.adaptive, self._interval_us or 0, what=what, rate=repr(self.rate))

    def _read_climb(self) -> int:
        climb_ms = to_ms(self.climb, what=f"Limit({self.key!r}, climb)")
        if not 1_000 <= climb_ms <= _SLOWEST_CLIMB_MS:
            raise InvalidOption(
                f"climb of Limit({self.key!r}) must be between 1 second and 1 day, got {self.climb!r}",
                fix="write climb=60",
            )
        return climb_ms

    def _read_buckets(self) -> Iterator[tuple[str, int, int]]:
        if not isinstance(self.buckets, Mapping):
            raise InvalidOption(
                f"Limit({self.key!r}, buckets={self.buckets!r:.80}) names no units",
                fix='write {"input_tokens": "200000/m", "usd": "5/h"}',
            )
        for unit, rate in self.buckets.items():
            count, interval_us = parse_bucket(checked_unit(unit, what=f"Limit({self.key!r}, buckets)"), rate)
            if unit == PLAIN:
                raise InvalidOption(
                    f"Limit({self.key!r}, buckets={{'cost': {rate!r}}}) is the limit's own rate", fix=f"rate={rate!r}"
                )
            yield unit, count, interval_us

    def rule(self, key: str) -> GateRule:
        """The gate of one filled key, without those of its buckets."""
        return GateRule(
            f"limit:{key}",
            concurrency=self.concurrency,
            interval_us=self._interval_us,
            burst=self._burst,
            default_for_429=self.learns,
            floor=self._floor,
            climb_ms=self._climb_ms,
        )

    def rules(self, key: str) -> tuple[GateRule, ...]:
        """Every gate of one filled key: its own, which a 429 holds, and one for each bucket."""
        buckets = (
            GateRule(f"limit:{unit}:{key}", interval_us=interval_us, burst=count, unit=stored_unit(unit))
            for unit, count, interval_us in self._buckets
        )
        return (self.rule(key), *buckets)


class DeclaredLimit(Struct, frozen=True, omit_defaults=True):
    """A limit as it was written, so that by-name producers fill the same keys as the code does."""

    key: str
    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None
    learns: bool = False
    buckets: dict[str, str] = {}
    adaptive: bool | str = False
    climb_ms: int = 60_000

    @classmethod
    def of(cls, limit: Limit) -> DeclaredLimit:
        return cls(
            limit.key,
            limit.rate,
            limit.burst,
            limit.concurrency,
            limit.learns,
            dict(limit.buckets),
            limit.adaptive,
            to_ms(limit.climb, what="climb"),
        )

    def limit(self) -> Limit:
        return Limit(
            self.key,
            self.rate,
            self.burst,
            self.concurrency,
            self.learns,
            self.buckets,
            self.adaptive,
            self.climb_ms / 1000,
        )


def usual_floor(interval_us: int | None, concurrency: int | None) -> int:
    """The slowest pace of an adaptive limit that names none: a tenth of its rate, or one job at once."""
    return _TENTH if interval_us is not None else max(1, -(-FULL_PACE // (concurrency or 1)))


def slowest_floor(slowest: str, interval_us: int, *, what: str, rate: str = "its own") -> int:
    """The slowest pace of an adaptive limit that names the slowest rate it may fall to."""
    slowest_us = parse_rate(slowest, what="adaptive")[1]
    if not interval_us <= slowest_us <= interval_us * _HUNDREDFOLD:
        raise InvalidOption(
            f"{what} must be a rate from a hundredth of {rate} to {rate}",
            fix="name the slowest rate that it may fall to, such as a tenth of rate=; or adaptive=True",
        )
    return max(1, FULL_PACE * interval_us // slowest_us)


@dataclass(frozen=True)
class Breaker:
    """Cuts a failing dependency off: opens after `failures` within `within` seconds, then probes with one job.

    A success between them resets the count; with `rate` it is the share of failed calls that counts instead.
    A name with a job's arguments in it, such as "webhook:{customer}", cuts off each of them by itself. The task has a
    breaker of its own then, too, which stops all of them.

    >>> Breaker(failures=3).rule("email.send").key
    'breaker:email.send'
    >>> Breaker("webhook:{customer}").filled("hook", {"customer": "acme"})
    'webhook:acme'
    """

    name: str | None = None
    failures: int = 5
    within: Duration = 60
    cooldown: Duration = 60
    probe_after: Duration | None = None
    rate: float | None = None
    min_calls: int = 20
    template: Template | None = field(init=False, repr=False, compare=False)
    _rule: BreakerRule = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, number, most in (
            ("failures", self.failures, _MOST_FAILURES),
            ("min_calls", self.min_calls, _MOST_CALLS),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                fix = f"use 1 to {most:,}; or a share of the calls: rate=0.5"
                raise InvalidOption(f"Breaker({name}={number!r}) never opens sensibly", fix=fix)
        share = isinstance(self.rate, int | float) and not isinstance(self.rate, bool) and 0 < self.rate <= 1
        if self.rate is not None and not share:
            raise InvalidOption(f"Breaker(rate={self.rate!r}) is not a share", fix="use 0.5 for half of the calls")
        object.__setattr__(self, "template", self._read_name())
        within_ms = to_ms(self.within, what="Breaker(within)")
        if not within_ms:
            raise InvalidOption(f"Breaker(within={self.within!r}) never opens", fix="use a second or more")
        cooldown_ms = to_ms(self.cooldown, what="Breaker(cooldown)")
        probe_ms = cooldown_ms if self.probe_after is None else to_ms(self.probe_after, what="Breaker(probe_after)")
        rule = BreakerRule(
            failures=self.failures,
            within_ms=within_ms,
            cooldown_ms=cooldown_ms,
            probe_after_ms=probe_ms,
            rate=None if self.rate is None else float(self.rate),
            min_calls=self.min_calls,
        )
        object.__setattr__(self, "_rule", rule)

    @classmethod
    def published(cls, name: str, rule: BreakerRule) -> Breaker:
        """The breaker of another program, which may be of a release that refuses other numbers."""
        made = object.__new__(cls)
        known = {
            "name": name,
            "failures": rule.failures,
            "within": rule.within_ms / 1000,
            "cooldown": rule.cooldown_ms / 1000,
            "probe_after": rule.probe_after_ms / 1000,
            "rate": rule.rate,
            "min_calls": rule.min_calls,
            "template": Template(name),
            "_rule": rule,
        }
        for field_name, value in known.items():
            object.__setattr__(made, field_name, value)
        return made

    @property
    def keyed(self) -> bool:
        """True when its name differs from job to job."""
        return self.template is not None and not self.template.constant

    def _read_name(self) -> Template | None:
        name: object = self.name  # a caller may not have asked a type checker
        if name is None:
            return None
        if not isinstance(name, str) or not name:
            raise InvalidOption(
                f"the name of a Breaker must be text, got {name!r}",
                fix='name what fails, such as "smtp"; or leave it out',
            )
        if len(name) > MAX_KEY_CHARS or not is_storable(name):
            raise InvalidOption(
                f"Breaker(name={name!r:.80}) cannot be kept", fix=f"use at most {MAX_KEY_CHARS} printable characters"
            )
        return Template(name)

    def key(self, task: str) -> str:
        """The name of the breaker that stops all jobs of the task: the one given, if that is the same for all."""
        return task if self.template is None or self.keyed else self.template.fill({"task": task})

    def filled(self, task: str, values: Mapping[str, object]) -> str | None:
        """The name of the breaker that stops this job and its like; None when no other than the one of `key` does."""
        name = self.template.fill(values) if self.keyed and self.template is not None else ""
        return name if name not in ("", self.key(task)) else None

    def rule(self, task: str) -> GateRule:
        """The gate of the breaker that stops all jobs of the task; those by key have its numbers."""
        return GateRule(f"breaker:{self.key(task)}", breaker=self._rule)
