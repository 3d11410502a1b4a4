"""Refuses jobs that their budgets cannot pay: those that never could and, where code asks for it, not now."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.budget import base_of, raising, this
from holdfast.core.duration import iso
from holdfast.core.errors import BudgetExceeded, InvalidArguments
from holdfast.core.gate import Gate, GateRule, left
from holdfast.core.job import Job
from holdfast.core.period import ends_ms
from holdfast.core.task import TaskSpec
from holdfast.core.unit import Cost, amount_text, public_amount, public_unit
from holdfast.stores.base import Store


class _Ask(Struct):
    """What the jobs of one call need of one budget."""

    rule: GateRule  # as the code declares it
    refuses: bool  # what does not fit now
    needs: int = 0  # all of them
    place: str = ""  # names the job that needs the last of it
    most: int = 0  # one of them
    dearest: str = ""  # names that one


class Purse:
    """What the jobs of one call need of budgets that refuse, or that are too small for them by what the code says."""

    def __init__(self) -> None:
        self._asks: dict[str, _Ask] = {}

    def add(self, spec: TaskSpec, job: Job, place: str = "") -> None:
        """Count one job; `place` says which it is, when there are several."""
        cost = Cost(job.cost, job.costs)
        if not any(budget.over == "refuse" or budget.too_dear(cost) for budget in spec.budgets):
            return  # it may have to wait, and that will end
        refusing = {rule.key for budget, rule in spec.caps(job.lane) if budget.over == "refuse"}
        for key, rule in {
            rule.key: rule for _, rule in spec.caps(job.lane)
        }.items():  # of two that are filled alike one
            ask = self._asks.setdefault(key, _Ask(rule, refuses=False))
            ask.refuses = ask.refuses or key in refusing
            needs = max(1, job.cost_in(rule.unit))
            ask.needs += needs
            ask.place = place
            if needs > ask.most:
                ask.most, ask.dearest = needs, f"{place}no job of {spec.name!r} can start with this cost: "

    def __len__(self) -> int:
        return len(self._asks)

    async def check(self, store: Store) -> None:
        """Refuse what would wait for ever, and what a budget that refuses has no room for now.

        What an operator has set counts, and not what the code declares. A courtesy: nothing is reserved.
        """
        now_ms = time.time_ns() // 1_000_000
        found = {gate.key: gate for gate in await store.gates(keys=list(self._asks))}
        for key, ask in self._asks.items():
            gate = found.get(key, Gate(ask.rule))
            if gate.declared:
                gate = replace(gate, rule=ask.rule)
            _refuse_for_ever(ask, gate)
            free = left(gate, now_ms)
            if ask.refuses and free < ask.needs:
                raise _refusal(gate.rule, ask, free, now_ms)

    def check_declared(self) -> None:
        """Refuse what would wait for ever by what the code says: for those who cannot ask the store."""
        for ask in self._asks.values():
            _refuse_for_ever(ask)


def _refuse_for_ever(ask: _Ask, gate: Gate | None = None) -> None:
    """A job that costs more than a whole budget never starts; `gate` is as stored, when that is known."""
    rule = ask.rule if gate is None else gate.rule
    if rule.cap is None or ask.most <= rule.cap:
        return
    unit, _, key = base_of(rule.key.removeprefix("limit:"))
    by = "" if gate is None or gate.declared else ", as an operator has set it"
    whole = f"{amount_text(unit, rule.cap)} a {rule.period}{by}"
    more = "declare a larger budget" if gate is None else f"raise the budget: {raising(rule, ask.most)}"
    needs = amount_text(unit, ask.most)
    raise InvalidArguments(
        f"{ask.dearest}it needs {needs}, and the budget {key!r} is {whole}: it would wait for ever",
        fix=f"split the work, lower cost=, or {more}",
    )


def _refusal(rule: GateRule, ask: _Ask, free: int, now_ms: int) -> BudgetExceeded:
    unit, _, key = base_of(rule.key.removeprefix("limit:"))
    period = rule.period or "day"
    until_ms = ends_ms(period, now_ms)
    named, enough = public_unit(rule.unit), (rule.cap or 0) - free + ask.needs
    has = f"{amount_text(unit, max(0, free))} of {amount_text(unit, rule.cap or 0)} left {this(period)}"
    return BudgetExceeded(
        f"{ask.place}the budget {key!r} has {has}, and this needs {amount_text(unit, ask.needs)}",
        fix=f"enqueue it after {iso(until_ms)}, or raise the budget: {raising(rule, enough)}",
        key=key,
        unit=named,
        left=public_amount(named, max(0, free)),
        needs=public_amount(named, ask.needs),
        until=datetime.fromtimestamp(until_ms / 1000, UTC),
    )
