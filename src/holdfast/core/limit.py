"""Decides what a declared limit or breaker means as gates: parses rates and the templates of their keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from string import Formatter
from typing import Final
from uuid import UUID

from holdfast.core.duration import Duration, to_ms
from holdfast.core.errors import InvalidArguments, InvalidOption, InvalidTask
from holdfast.core.gate import FULL, BreakerRule, GateRule
from holdfast.core.refs import Refers
from holdfast.core.text import is_storable
from holdfast.core.unit import (
    MICRO,
    MONEY,
    PLAIN,
    amount_of,
    amount_text,
    checked_unit,
    stored_unit,
)

MAX_KEY_CHARS: Final = 256  # keys are copied into lanes, indexes and pages
PLACES: Final = ("task", "queue", "group")  # what a template may name beside parameters

_NUMBER: Final = r"\d{1,18}(?:\.\d{1,18})?"
_TIME: Final = rf"\s*/\s*({_NUMBER})?\s*(ms|s|m|h|d)\s*"
_RATE: Final = re.compile(rf"\s*(\d{{1,18}}){_TIME}")
_BUCKET: Final = re.compile(rf"\s*({_NUMBER}){_TIME}")
_FIELD: Final = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*|\[[^\[\]]+\])*)")
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[([^\[\]]+)\]")
_TENTH: Final = FULL // 10
_HUNDREDFOLD: Final = 100
_SLOWEST_CLIMB_MS: Final = 86_400_000
_MOST: Final = 1_000_000
_MOST_FAILURES: Final = 1_000  # a breaker that counts keeps the instant of each
_SLOWEST_US: Final = 366 * 86_400 * 1_000_000
_MOST_BUCKET: Final = 1 << 40
# Of buckets: times the dearest job this stays far within 64 bits.
_SLOWEST_TOKENS_US: Final = 60_000_000
_SLOWEST_MONEY_US: Final = 200_000
_SCALARS: Final = (str, int, float, Decimal, UUID, date)


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A sentence for a refusal: the nearest known name, or all of them."""
    close = get_close_matches(name, sorted(known), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(sorted(known))}" if known else "there are none"


@dataclass(frozen=True)
class _Field:
    """One "{param.attr[key]}" of a template."""

    name: str
    steps: tuple[tuple[str, bool], ...]  # (attribute or key, is a key)
    text: str


class Template:
    """Text with "{param}", "{param.attr}", "{param[key]}", "{task}", "{queue}" or "{group}" in it.

    >>> Template("customer:{order.customer}").fill({"order": {"customer": 42}})
    'customer:42'
    """

    __slots__ = ("_one", "_parts", "constant", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise InvalidTask(f"{text!r} is not a key", fix='write text such as "smtp" or "customer:{customer}"')
        self.text = text
        self._parts: list[tuple[str, _Field | None]] = _parse(text)
        # True when every job of a task gets the same text.
        self.constant = all(place is None or place.name == "task" for _, place in self._parts)
        # "customer:{customer}" is the common case, and on the path of every enqueue.
        last = self._parts[-1][1]
        single = len(self._parts) == 1 and last is not None and not last.steps
        self._one = (self._parts[0][0], last.name) if single and last is not None else None

    def __repr__(self) -> str:
        return f"Template({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters and places it reads."""
        return tuple(place.name for _, place in self._parts if place is not None)

    def shape(self, task: str) -> str:
        """The text with what differs from job to job left out: templates that may fill the same keys look alike."""
        return "".join(
            literal + ("" if place is None else task if place.name == "task" else "{}")
            for literal, place in self._parts
        )

    def check(self, parameters: Collection[str]) -> None:
        """Refuse names that are neither parameters nor places."""
        if "task" in self.names and "task" in parameters:
            raise InvalidTask(
                f"the key {self.text!r} names {{task}}, which is both the task itself and a parameter of it",
                fix="call the parameter something else",
            )
        for name in self.names:
            if name not in parameters and name not in PLACES:
                raise InvalidTask(
                    f"the key {self.text!r} names {name!r}, which is not a parameter of the task",
                    fix=did_you_mean(name, [*parameters, *PLACES]),
                )

    def fill(self, values: Mapping[str, object]) -> str:
        """The text for one call; `values` holds the arguments and the places."""
        if self._one is not None:
            literal, name = self._one
            value = values.get(name)
            if type(value) is str and len(value) + len(literal) <= MAX_KEY_CHARS and value.isprintable():
                return literal + value
        filled = "".join(
            literal + ("" if place is None else self._read(place, values)) for literal, place in self._parts
        )
        return checked_key(filled, what=f"the key {self.text!r}")

    def made(self, text: str) -> bool:
        """Whether some call could have filled it to this text."""
        pattern = "".join(re.escape(literal) + ("" if place is None else ".*") for literal, place in self._parts)
        return re.fullmatch(pattern, text, re.DOTALL) is not None

    def _read(self, place: _Field, values: Mapping[str, object]) -> str:
        if place.name not in values:
            raise InvalidArguments(
                f"the key {self.text!r} needs {place.name!r}, which was not passed", fix=f"pass {place.name}="
            )
        value = values[place.name]
        if isinstance(value, Refers):
            raise InvalidArguments(
                f"the key {self.text!r} reads {place.text!r}, which is another job's result and not known yet",
                fix=f"pass what {place.text!r} names as an argument of its own",
            )
        for name, is_key in place.steps:
            value = self._step(value, name, is_key, place)
        if isinstance(value, Enum):
            value = value.value
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _SCALARS):
            return str(value)
        raise InvalidArguments(
            f"the key {self.text!r} reads {place.text!r}, which is a {type(value).__qualname__} and names nothing",
            fix=f"let it read a text or a number, such as {{{place.text}.id}}",
        )

    def _step(self, value: object, name: str, is_key: bool, place: _Field) -> object:
        # By-name enqueue passes JSON where code passes objects, so attributes read keys as well.
        try:
            if isinstance(value, Mapping):
                return value[name] if name in value else value[int(name)]
            if is_key and isinstance(value, Sequence) and not isinstance(value, str):
                return value[int(name)]
            if not is_key:
                found: object = getattr(value, name)
                return found
        except (KeyError, IndexError, AttributeError, ValueError):
            pass
        raise InvalidArguments(
            f"the key {self.text!r} reads {place.text!r}, but {type(value).__qualname__} has no {name!r}",
            fix="pass a value that has it, or change the template",
        )


def _parse(text: str) -> list[tuple[str, _Field | None]]:
    fix = 'write "{param}", "{param.attr}", "{param[key]}", "{task}", "{queue}" or "{group}"; a brace itself is doubled'
    try:
        found = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidTask(f"the key {text!r} cannot be read: {error}", fix=fix) from error
    parts: list[tuple[str, _Field | None]] = []
    for literal, name, spec, conversion in found:
        if name is None:
            parts.append((literal, None))
            continue
        match = _FIELD.fullmatch(name)
        if match is None or spec or conversion:
            raise InvalidTask(f"the key {text!r} has the field {{{name}}}, which cannot be read", fix=fix)
        steps = tuple((attr or key, bool(key)) for attr, key in _STEP.findall(match[2]))
        parts.append((literal, _Field(match[1], steps, name)))
    return parts


def checked_key(text: str, *, what: str) -> str:
    """`text` when it is short enough to be a key, and every engine can keep it."""
    if not is_storable(text):
        raise InvalidArguments(
            f"{what} holds {text!r:.80}, and a NUL or half a character cannot be stored",
            fix="decode it properly, or use a hash of the value",
        )
    if len(text) > MAX_KEY_CHARS:
        raise InvalidArguments(
            f"{what} is {len(text)} characters long",
            fix=f"use at most {MAX_KEY_CHARS}, for example a hash of the value",
        )
    return text


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
        slowest_us, declared_us = parse_rate(self.adaptive)[1], self._interval_us or 0
        if not declared_us <= slowest_us <= declared_us * _HUNDREDFOLD:
            raise InvalidOption(
                f"{what} is no slower rate than {self.rate!r}, or a hundred times slower and more",
                fix="name the slowest rate that it may fall to, such as a tenth of rate=; or adaptive=True",
            )
        return max(1, FULL * declared_us // slowest_us)

    def _read_climb(self) -> int:
        climb_ms = to_ms(self.climb, what=f"Limit({self.key!r}, climb)")
        if not 1_000 <= climb_ms <= _SLOWEST_CLIMB_MS:
            raise InvalidOption(
                f"Limit({self.key!r}, climb={self.climb!r}) is no time to recover in", fix="from a second to a day"
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
            learns=self.learns,
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


def usual_floor(interval_us: int | None, concurrency: int | None) -> int:
    """The slowest pace of an adaptive limit that names none: a tenth of its rate, or one job at once."""
    return _TENTH if interval_us is not None else max(1, -(-FULL // (concurrency or 1)))


def checked_ceiling(number: object, *, what: str) -> int:
    """How many may run at once, or go at once; `what` names the value."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InvalidOption(f"{what} admits nobody", fix="use an integer, 1 or more; to stop the jobs, pause them")
    if number > _MOST:
        raise InvalidOption(f"{what} limits nothing", fix="leave it out")
    return number


def checked_burst(burst: int | None, count: int, interval_us: int, *, what: str) -> int:
    """How many may go at once at a rate of `count` tokens, one per interval: as many, unless somebody says so."""
    most = count if burst is None else checked_ceiling(burst, what=what)
    if most * interval_us >= 1 << 62:  # engines count in 64 bits
        raise InvalidOption(f"{what} would fill up for millennia", fix="use a smaller burst")
    return most


def parse_rate(text: str) -> tuple[int, int]:
    """("10/m") → (10, microseconds between two tokens). Rounded up: never faster than asked."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidOption(f"rate={text!r:.80} cannot be read", fix='write "10/s", "10/m", "1000/h", "5/d" or "3/30s"')
    count = int(match[1])
    if count < 1:
        raise InvalidOption(f"rate={text!r} admits nobody", fix="use 1 or more; to stop the jobs, pause them")
    period_us = round(float(match[2] or 1) * to_ms(f"1{match[3]}", what="rate") * 1000)
    if period_us > count * _SLOWEST_US:
        raise InvalidOption(f"rate={text!r} is slower than one a year", fix="use a schedule instead of a limit")
    if not count <= period_us:
        raise InvalidOption(f"rate={text!r} is more than a million per second", fix="leave the rate out")
    return count, -(-period_us // count)


def parse_bucket(unit: str, text: str) -> tuple[int, int]:
    """The rate of a bucket, in what its unit is stored in: ("usd", "5/h") → (5000000, 720)."""
    what = f"the bucket {unit}={text!r}"
    match = _BUCKET.fullmatch(text) if isinstance(text, str) else None
    if match is None or float(match[2] or 1) <= 0:
        example = "5/h" if unit == MONEY else "200000/m"
        raise InvalidOption(f"{what} cannot be read", fix=f'write an amount and a time, such as "{example}"')
    count = amount_of(unit, match[1], what=f"the bucket {unit}", most=_MOST_BUCKET // (MICRO if unit == MONEY else 1))
    period_us = round(float(match[2] or 1) * to_ms(f"1{match[3]}", what="rate") * 1000)
    if count < 1:
        raise InvalidOption(f"{what} admits nobody", fix="use a positive amount; to stop the jobs, pause them")
    if period_us > count * (_SLOWEST_MONEY_US if unit == MONEY else _SLOWEST_TOKENS_US):
        raise InvalidOption(f"{what} is too slow to be kept as a rate", fix="use a Budget for so little")
    interval_us = -(-period_us // count)
    if interval_us * count > period_us * 1.1:
        # Rates are kept as whole microseconds per token (of money: per millionth of a dollar), never faster than asked.
        slow, fast = (amount_text(unit, period_us // each) for each in (interval_us, max(1, interval_us - 1)))
        raise InvalidOption(
            f"{what} lies between two rates that can be kept", fix=f"use {slow} or {fast} for that time"
        )
    return count, interval_us


@dataclass(frozen=True)
class Breaker:
    """Cuts a failing dependency off: opens after `failures` within `within` seconds, then probes with one job.

    >>> Breaker(failures=3).rule("email.send").key
    'breaker:email.send'
    """

    name: str | None = None
    failures: int = 5
    within: Duration = 60
    cooldown: Duration = 60
    probe_after: Duration | None = None
    rate: float | None = None
    min_calls: int = 20
    _rule: BreakerRule = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, number, most in (("failures", self.failures, _MOST_FAILURES), ("min_calls", self.min_calls, _MOST)):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                fix = f"use 1 to {most:,}; or a share of the calls: rate=0.5"
                raise InvalidOption(f"Breaker({name}={number!r}) never opens sensibly", fix=fix)
        share = isinstance(self.rate, int | float) and not isinstance(self.rate, bool) and 0 < self.rate <= 1
        if self.rate is not None and not share:
            raise InvalidOption(f"Breaker(rate={self.rate!r}) is not a share", fix="use 0.5 for half of the calls")
        self._check_name()
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
            "_rule": rule,
        }
        for field_name, value in known.items():
            object.__setattr__(made, field_name, value)
        return made

    def _check_name(self) -> None:
        name: object = self.name  # a caller may not have asked a type checker
        if name is None:
            return
        if not isinstance(name, str) or not name:
            raise InvalidOption(
                f"Breaker(name={name!r}) is no name", fix='name what fails, such as "smtp"; or leave it out'
            )
        if "{" in name:
            raise InvalidOption(
                f"Breaker(name={name!r:.80}) would be one for all jobs: its name is no template",
                fix="use a fixed name; a Limit has one key for each customer",
            )
        if len(name) > MAX_KEY_CHARS or not is_storable(name):
            raise InvalidOption(
                f"Breaker(name={name!r:.80}) cannot be kept", fix=f"use at most {MAX_KEY_CHARS} printable characters"
            )

    def key(self, task: str) -> str:
        """Its name: the one given, else the task's."""
        return self.name or task

    def rule(self, task: str) -> GateRule:
        """The gate of this breaker when `task` declares it."""
        return GateRule(f"breaker:{self.key(task)}", breaker=self._rule)
