"""Refuses jobs that their budgets cannot pay: those that never could and, where code asks for it, not now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from holdfast.core.budget import base_of, this
from holdfast.core.duration import iso
from holdfast.core.errors import BudgetExceeded, InvalidArguments
from holdfast.core.gate import Gate, GateRule, left
from holdfast.core.job import Job
from holdfast.core.period import ends_ms
from holdfast.core.task import Options, TaskSpec, build_job
from holdfast.core.unit import Cost, amount_text, amount_typed, public_amount, public_unit
from holdfast.stores.asking import gate_of
from holdfast.stores.base import Store


def affordable_job(
    spec: TaskSpec,
    values: Mapping[str, Any],
    options: Options,
    *,
    id: bytes,
    flow: bytes | None = None,
    meta: bytes = b"",
) -> tuple[Job, tuple[GateRule, ...]]:
    """The job of one call; one that costs more than a whole budget would wait for ever, and is refused."""
    job, rules = build_job(spec, values, options, id=id, flow=flow, meta=meta)
    for budget in spec.budgets:
        why = budget.too_dear(Cost(job.cost, job.costs))
        if why:
            raise InvalidArguments(
                f"no job of {spec.name!r} can start with this cost: {why}",
                fix="split the work, lower cost=, or declare a larger budget",
            )
    return job, rules


class _Ask(Struct):
    """What the jobs of one call need of one budget."""

    rule: GateRule
    needs: int
    place: str  # names the job that needs the last of it


class Purse:
    """What the jobs of one call need of budgets that refuse."""

    def __init__(self) -> None:
        self._asks: dict[str, _Ask] = {}

    def add(self, spec: TaskSpec, job: Job, place: str = "") -> None:
        """Count one job; `place` says which it is, when there are several."""
        for rule in spec.refusing(job.lane):
            ask = self._asks.setdefault(rule.key, _Ask(rule, 0, ""))
            ask.needs += max(1, job.cost_in(rule.unit))
            ask.place = place

    def __len__(self) -> int:
        return len(self._asks)

    async def check(self, store: Store) -> None:
        """Refuse the call when a budget has no room for all of it now. A courtesy: nothing is reserved."""
        now_ms = time.time_ns() // 1_000_000
        for key, ask in self._asks.items():
            found = await gate_of(store, key) or Gate(ask.rule)
            free = left(found, now_ms)
            if free < ask.needs:
                raise _refusal(found.rule, ask, free, now_ms)


def _refusal(rule: GateRule, ask: _Ask, free: int, now_ms: int) -> BudgetExceeded:
    unit, _, key = base_of(rule.key.removeprefix("limit:"))
    period = rule.period or "day"
    until_ms = ends_ms(period, now_ms)
    named, enough = public_unit(rule.unit), (rule.cap or 0) - free + ask.needs
    has = f"{amount_text(unit, max(0, free))} of {amount_text(unit, rule.cap or 0)} left {this(period)}"
    return BudgetExceeded(
        f"{ask.place}the budget {key!r} has {has}, and this needs {amount_text(unit, ask.needs)}",
        fix=f"enqueue it after {iso(until_ms)}, or raise the budget: "
        f"holdfast limits set {key} --budget {named}={amount_typed(named, enough)}/{period}",
        key=key,
        unit=named,
        left=public_amount(named, max(0, free)),
        needs=public_amount(named, ask.needs),
        until=datetime.fromtimestamp(until_ms / 1000, UTC),
    )
