"""Decides what a budget means as gates, and which of a job's keys are limits, buckets and budgets."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, get_args

from limpet.core.errors import InvalidOption
from limpet.core.gate import GateRule
from limpet.core.jobs.job import Lane
from limpet.core.limits.limit import Limit
from limpet.core.limits.period import PERIODS, Period
from limpet.core.limits.unit import (
    MICRO,
    MONEY,
    PLAIN,
    UNITS,
    Amount,
    Cost,
    amount_of,
    amount_text,
    amount_typed,
    stored_unit,
)
from limpet.core.tasks.naming import did_you_mean
from limpet.core.tasks.template import Template

Over = Literal["wait", "refuse"]

_MOST_CAP: Final = 1 << 50  # what the scripts of every engine still add up exactly


@dataclass(frozen=True)
class Budget:
    """A hard cap per period, shared by every job with the same key, over all workers.

    A job reserves what its `cost=` says before it starts, and waits while that does not fit (`over="wait"`); what it
    says it really `spent` corrects the reservation. With `over="refuse"` enqueue raises BudgetExceeded instead of
    storing a job that does not fit now. Periods are calendar ones in UTC: minute, hour, day, week (from Monday),
    month.

    >>> [(rule.key, rule.cap) for rule in Budget("llm:{team}", usd=50, per="day").rules("llm:acme")]
    [('limit:usd/day:llm:acme', 50000000)]
    """

    key: str
    _: KW_ONLY
    usd: Amount | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: int | None = None
    per: Period = "day"
    over: Over = "wait"
    template: Template = field(init=False, repr=False, compare=False)
    caps: tuple[tuple[str, int], ...] = field(init=False, repr=False, compare=False)  # by unit, as they are stored

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", Template(self.key))
        for name, value, known in (("per", self.per, PERIODS), ("over", self.over, get_args(Over))):
            if value not in known:
                raise InvalidOption(
                    f"Budget({self.key!r}, {name}={value!r}) is unknown", fix=did_you_mean(str(value), known)
                )
        given = {unit: getattr(self, unit) for unit in UNITS if getattr(self, unit) is not None}
        if not given:
            raise InvalidOption(f"Budget({self.key!r}) caps nothing", fix="add usd=50 or tokens=1_000_000")
        caps = ((unit, checked_cap(unit, value, what=f"Budget({self.key!r}): {unit}")) for unit, value in given.items())
        object.__setattr__(self, "caps", tuple(caps))

    def rules(self, key: str) -> tuple[GateRule, ...]:
        """The gates of one filled key: one for each unit that is capped."""
        return tuple(
            GateRule(budget_key(unit, self.per, key), unit=stored_unit(unit), cap=cap, period=self.per)
            for unit, cap in self.caps
        )

    def too_dear(self, cost: Cost) -> str:
        """Why a job of this cost would wait for ever; nothing when it would not."""
        for unit, cap in self.caps:
            if cost.of(unit) > cap:
                needs, whole = amount_text(unit, cost.of(unit)), amount_text(unit, cap)
                return f"it needs {needs}, and Budget({self.key!r}) is {whole} a {self.per}: it would wait for ever"
        return ""


Ceiling = Limit | Budget  # what `limits=` takes


def this(period: Period) -> str:
    """The current period, in words."""
    return "today" if period == "day" else f"this {period}"


def budget_key(unit: str, per: str, key: str) -> str:
    """The gate of a budget."""
    return f"limit:{unit}/{per}:{key}"


def base_of(key: str) -> tuple[str, str, str]:
    """(unit, period, key) of what a limit key may stand for: a bucket has no period, a limit itself neither.

    >>> base_of("usd/day:llm:acme"), base_of("tokens:openai"), base_of("customer:acme")
    (('usd', 'day', 'llm:acme'), ('tokens', '', 'openai'), ('', '', 'customer:acme'))
    """
    head, _, rest = key.partition(":")
    unit, _, period = head.partition("/")
    known = rest and unit in UNITS and (period in PERIODS if "/" in head else unit != PLAIN)
    return (unit, period, rest) if known else ("", "", key)


def raising(rule: GateRule, cap: int) -> str:
    """The command by which an operator raises a budget to `cap`."""
    unit, _, key = base_of(rule.key.removeprefix("limit:"))
    return f"limpet limits set {key} --budget {unit}={amount_typed(unit, cap)}/{rule.period}"


def first_limit(lane: Lane) -> str | None:
    """The key that pushback holds when nothing else is said: the first limit, and never a bucket or a budget of one."""
    keys = (*lane.limits, *lane.keys)
    for key in keys:
        unit, period, base = base_of(key)
        if not unit or (not period and base not in keys):
            return key
    return None


def checked_cap(unit: str, value: object, *, what: str) -> int:
    """The cap of a budget as it is stored; zero would stop its jobs for ever."""
    scale = MICRO if unit == MONEY else 1
    cap = amount_of(unit, value, what=what, most=_MOST_CAP // scale)
    if cap < 1:
        raise InvalidOption(f"{what} must be a positive number, got {value!r}", fix="to stop the jobs, pause them")
    return cap
