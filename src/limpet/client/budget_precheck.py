"""Refuses jobs before they are stored that their budgets can never pay or, where code asks for it, not now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from limpet.core.errors import BudgetExceeded, InvalidArguments
from limpet.core.gate import Gate, GateRule, budget_left
from limpet.core.jobs.job import Job
from limpet.core.jobs.state import LIVE, State
from limpet.core.jobs.view import Query, Term
from limpet.core.limits.budget import base_of, raising, this
from limpet.core.limits.period import ends_ms
from limpet.core.limits.unit import Cost, amount_text, public_amount, public_unit
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import iso
from limpet.stores.base import Store

_MOST_KEYS: Final = 100  # unique keys that are looked up before a call is refused: each is a question to the store


class _Need(Struct, frozen=True):
    """What one job needs of one budget."""

    job: Job
    task: str
    rule: GateRule  # as the code declares it
    refuses: bool  # what does not fit now
    place: str  # names the job, when there are several


class _Ask(Struct):
    """What the jobs of one call need of one budget."""

    rule: GateRule
    refuses: bool = False
    needs: int = 0  # all of them
    place: str = ""  # names the job that needs the last of it
    most: int = 0  # one of them
    dearest: str = ""  # names that one


class BudgetPrecheck:
    """What the jobs of one call need of budgets that refuse, or that are too small for them by what the code says."""

    def __init__(self) -> None:
        self._needs: list[_Need] = []

    def add(self, spec: TaskSpec, job: Job, place: str = "") -> None:
        """Count one job; `place` says which it is, when there are several."""
        cost = Cost(job.cost, job.costs)
        if not any(budget.over == "refuse" or budget.too_dear(cost) for budget in spec.budgets):
            return  # it may have to wait, and that will end
        refusing = {rule.key for budget, rule in spec.caps(job.lane) if budget.over == "refuse"}
        rules = {rule.key: rule for _, rule in spec.caps(job.lane)}  # of two that are filled alike one
        self._needs += (_Need(job, spec.name, rule, key in refusing, place) for key, rule in rules.items())

    def __len__(self) -> int:
        return len(self._needs)

    async def check(self, store: Store) -> None:
        """Refuse what would wait for ever, and what a budget that refuses has no room for now.

        What an operator has set counts, and not what the code declares. A courtesy: nothing is reserved. Jobs that are
        stored already need nothing: who asks for them again is answered, and not refused.
        """
        now_ms = time.time_ns() // 1_000_000
        asks = _asks(self._needs)
        found = {gate.key: gate for gate in await store.gates(keys=list(asks))}
        try:
            _check(asks, found, now_ms)
        except (BudgetExceeded, InvalidArguments):
            stored = await _stored([need.job for need in self._needs], store)
            if not stored:
                raise
            _check(_asks(need for need in self._needs if need.job.id not in stored), found, now_ms)

    def check_declared(self) -> None:
        """Refuse a job that would wait for ever by the code's caps: for callers that cannot ask the store."""
        for ask in _asks(self._needs).values():
            _refuse_for_ever(ask)


def _asks(needs: Iterable[_Need]) -> dict[str, _Ask]:
    """What is needed of each budget, by its gate."""
    asks: dict[str, _Ask] = {}
    for need in needs:
        ask = asks.setdefault(need.rule.key, _Ask(need.rule))
        ask.refuses = ask.refuses or need.refuses
        amount = max(1, need.job.cost_in(need.rule.unit))
        ask.needs += amount
        ask.place = need.place
        if amount > ask.most:
            ask.most, ask.dearest = amount, f"{need.place}no job of {need.task!r} can start with this cost: "
    return asks


def _check(asks: Mapping[str, _Ask], found: Mapping[str, Gate], now_ms: int) -> None:
    for key, ask in asks.items():
        gate = found.get(key, Gate(ask.rule))
        if gate.declared:
            gate = replace(gate, rule=ask.rule)
        _refuse_for_ever(ask, gate)
        free = budget_left(gate, now_ms)
        if ask.refuses and free < ask.needs:
            raise _refusal(gate.rule, ask, free, now_ms)


async def _stored(jobs: Sequence[Job], store: Store) -> set[bytes]:
    """Those of the jobs that are stored already, or are duplicates that change nothing."""
    ids = list(dict.fromkeys(job.id for job in jobs))
    stored = {id for id, view in zip(ids, await store.get(ids), strict=True) if view is not None}
    keyed = {job.id: job.unique for job in jobs if job.unique is not None and job.id not in stored}
    for id, unique in islice(keyed.items(), _MOST_KEYS):
        page = await store.find(Query(states=LIVE, terms=(Term("unique", unique.key),)))
        holders = (view for view in page.jobs if view.unique == unique.key)  # a key may look like a wildcard
        if any(unique.on_duplicate == "existing" or view.state is State.running for view in holders):
            stored.add(id)
    return stored


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
