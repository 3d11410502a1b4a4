"""What is left of a budget in its period: jobs reserve what they cost, and wait for more."""

from __future__ import annotations

from msgspec.structs import replace

from limpet.core.gate.record import MOST, UNLIMITED, Gate
from limpet.core.limits.period import began_ms, ends_ms


def budget_left(gate: Gate, now_ms: int) -> int:
    """What is left of the budget in the current period; below zero when jobs cost more than they had reserved."""
    if gate.rule.cap is None:
        return UNLIMITED
    return gate.rule.cap - (gate.spent if is_current(gate, now_ms) else 0)


def budget_room(gate: Gate, now_ms: int) -> int:
    """What is left, unless a job waits for more than that: a large job is not starved by smaller ones."""
    if gate.rule.cap is None:
        return UNLIMITED
    free = budget_left(gate, now_ms)
    wanted = gate.reserved_for if is_current(gate, now_ms) else 0
    return free if free >= wanted else 0


def budget_opens_at_ms(gate: Gate, now_ms: int) -> int:
    """When the next period begins, if nothing is left of this one."""
    period = gate.rule.period
    if period is None or budget_room(gate, now_ms) > 0:
        return now_ms
    return ends_ms(period, max(now_ms, gate.period_ms))


def admitted_by_budget(gate: Gate, costs: list[int], now_ms: int) -> int:
    """How many jobs from the front of `costs` fit into what is left, each with all that it costs."""
    free = budget_left(gate, now_ms)
    for count, cost in enumerate(costs):
        if free < max(1, cost):
            return count
        free -= cost
    return len(costs)


def is_current(gate: Gate, now_ms: int) -> bool:
    """Whether the period that is counted is the one that it is now, or a later one: no clock that goes back refills."""
    period = gate.rule.period
    return period is not None and gate.period_ms >= began_ms(period, now_ms)


def reserve(gate: Gate, cost: int, reserved_for: int, now_ms: int) -> Gate:
    """The gate after so much was reserved; what is left then is kept for a job that needs `reserved_for`."""
    rule = gate.rule
    if rule.cap is None or rule.period is None:
        return gate
    spent = gate.spent if is_current(gate, now_ms) else 0
    period_ms = max(gate.period_ms, began_ms(rule.period, now_ms))
    return replace(gate, period_ms=period_ms, spent=min(MOST, spent + cost), reserved_for=reserved_for)


def falls_short(gate: Gate, cost: int, now_ms: int) -> Gate:
    """The gate after a job of this cost, which nothing else stops, did not fit its budget: no later job passes it."""
    return gate if budget_left(gate, now_ms) >= max(1, cost) else reserve(gate, 0, max(1, cost), now_ms)


def stop_waiting(gate: Gate, cost: int) -> Gate:
    """Reopen a budget that was closed for a job of this cost, now that the job has left the queue."""
    return replace(gate, reserved_for=0) if gate.reserved_for and gate.reserved_for == max(1, cost) else gate


def correct_budget(gate: Gate, cost: int, actual_cost: int, charged_at_ms: int) -> Gate:
    """The gate after a job that reserved `cost` turned out to cost `actual_cost`: in its period, as long as that lasts.

    What has reached MOST stays there: how much was cut off is not known.
    """
    period = gate.rule.period
    if period is None or gate.period_ms != began_ms(period, charged_at_ms) or gate.spent >= MOST:
        return gate
    return replace(gate, spent=min(MOST, max(0, gate.spent + actual_cost - cost)))


def budget_is_blank(gate: Gate, now_ms: int) -> bool:
    """Whether nothing is spent or announced in this period."""
    return not ((gate.spent or gate.announced_marks) and is_current(gate, now_ms))
