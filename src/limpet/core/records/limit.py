"""Decides what of a limit, a budget and a breaker is public: its rule, its level, and why it admits no job."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from limpet.core.gate import (
    FULL_PACE,
    UNLIMITED,
    Gate,
    budget_left,
    counted,
    fastest_at_ms,
    max_concurrency,
    pace,
    room,
    tokens,
)
from limpet.core.limits.period import ends_ms
from limpet.core.limits.unit import MICRO, MONEY, public_amount, public_unit
from limpet.core.records.queue import PauseRecord
from limpet.core.records.record import Record, instant, moment


class BudgetRecord(Record, frozen=True, kw_only=True):
    """The cap of a budget and how much of it is left; dollars of money."""

    unit: str
    cap: float
    spent: float
    left: float
    wanted: float | None  # what the first job in line needs, if it does not fit now
    per: str
    ends_at: datetime

    @classmethod
    def of(cls, gate: Gate, now_ms: int) -> BudgetRecord | None:
        """The budget of a gate; None when it has none."""
        rule, unit = gate.rule, public_unit(gate.rule.unit)
        if rule.cap is None or rule.period is None:
            return None
        free = budget_left(gate, now_ms)
        return cls(
            unit=unit,
            cap=public_amount(unit, rule.cap),
            spent=public_amount(unit, rule.cap - free),
            left=public_amount(unit, free),
            wanted=public_amount(unit, gate.reserved_for) if gate.reserved_for and room(gate, now_ms) <= 0 else None,
            per=rule.period,
            ends_at=moment(ends_ms(rule.period, now_ms)),
        )


class PaceRecord(Record, frozen=True, kw_only=True):
    """How fast a limit goes, in percent of what is declared."""

    percent: float
    fastest_at: datetime | None  # when it is as fast as it may be
    adaptive: bool
    floor: float | None
    ceiling: float | None

    @classmethod
    def of(cls, gate: Gate, now_ms: int) -> PaceRecord | None:
        """The pace of a gate; None when nothing can slow it down."""
        floor = gate.rule.floor
        if floor is None and max_concurrency(gate, now_ms) is None:
            return None
        percent = 100 / FULL_PACE
        fastest = fastest_at_ms(gate)
        return cls(
            percent=round(pace(gate, now_ms) * percent, 1),
            fastest_at=moment(fastest) if fastest > now_ms else None,
            adaptive=floor is not None,
            floor=None if floor is None else round(floor * percent, 1),
            ceiling=None if floor is None else round(gate.ceiling * percent, 1),
        )


class LimitRecord(Record, frozen=True, kw_only=True):
    """A limit, a bucket or a budget: what it admits, and how many jobs it stops."""

    key: str
    set_by: Literal["code", "operator"]
    free: float | None  # jobs, or units, that it admits now; None: any number
    concurrency: int | None
    used: int
    depth: int | None
    tenant_depth: int | None
    unit: str
    per_second: float | None
    burst: float | None
    tokens: float | None
    budget: BudgetRecord | None
    pace: PaceRecord | None
    waiting: int  # ready jobs that it stops
    held_until: datetime | None  # after a 429
    shut: bool  # no money or quota is left
    shut_until: datetime | None
    paused: PauseRecord | None
    draining: bool
    all_counted: bool  # False: at least this number waits

    @classmethod
    def of(cls, gate: Gate, now_ms: int, waiting: int = 0, *, all_counted: bool = True) -> LimitRecord:
        """The public face of a gate."""
        rule, unit = gate.rule, gate.rule.unit
        has_rate = rule.interval_us is not None
        return cls(
            key=gate.key,
            set_by="code" if gate.declared else "operator",
            free=None if (free := room(gate, now_ms)) >= UNLIMITED else _amount(unit, free),
            concurrency=rule.concurrency,
            used=gate.used,
            depth=rule.depth,
            tenant_depth=rule.tenant_depth,
            unit=public_unit(unit),
            per_second=None if rule.interval_us is None else _amount(unit, 1_000_000 / rule.interval_us),
            burst=_amount(unit, rule.burst) if has_rate else None,
            tokens=_amount(unit, tokens_level(gate, now_ms)) if has_rate else None,
            budget=BudgetRecord.of(gate, now_ms),
            pace=PaceRecord.of(gate, now_ms),
            waiting=waiting,
            held_until=instant(gate.held_until_ms) if gate.held_until_ms > now_ms else None,
            shut=gate.breaker_open,
            shut_until=instant(gate.open_until_ms or None),
            paused=PauseRecord.of(gate),
            draining=gate.draining,
            all_counted=all_counted,
        )


def tokens_level(gate: Gate, now_ms: int) -> int:
    """The tokens of a rate; of a held rate, the tokens that it will begin with."""
    return tokens(gate, max(now_ms, gate.held_until_ms))


def _amount(unit: str, stored: float) -> float:
    """A rate or a level as people read it."""
    return round(stored / MICRO if unit == MONEY else stored, 6)


class BreakerRecord(Record, frozen=True, kw_only=True):
    """A breaker's state and what it has counted."""

    breaker: str
    state: Literal["closed", "open", "half-open"]
    open_until: datetime | None
    by_hand: bool
    probe_under_way: bool
    recent_failures: int
    recent_calls: int | None
    opened: int  # how often

    @classmethod
    def of(cls, gate: Gate, now_ms: int) -> BreakerRecord:
        """The public face of a breaker."""
        failures, calls = counted(gate, now_ms)
        return cls(
            breaker=gate.key.removeprefix("breaker:"),
            state="closed" if not gate.open_until_ms else "open" if gate.open_until_ms > now_ms else "half-open",
            open_until=instant(gate.open_until_ms or None),
            by_hand=gate.by_hand,
            probe_under_way=bool(gate.probe_token),
            recent_failures=failures,
            recent_calls=calls,
            opened=gate.opened,
        )


class BreakerPage(Record, frozen=True, kw_only=True):
    """One page of breakers, and of limits and tasks that are closed; open ones come first."""

    breakers: tuple[BreakerRecord, ...]
    cursor: str | None


class ChangeRecord(Record, frozen=True, kw_only=True):
    """What became of a pause, a drain, a limit, a breaker or a hook that was changed."""

    key: str
    changed: tuple[str, ...]  # all keys that have: a limit has buckets and budgets of their own
    state: str  # paused, resumed, draining, set, cleared, open, closed, removed
    notes: tuple[str, ...] = ()
