"""What jobs take from a gate when they are claimed, and what comes back when they end."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from limpet.core.gate.admission import budget_left, is_current, later_us, max_concurrency, token_us
from limpet.core.gate.breaker import learn, trip
from limpet.core.gate.record import FULL_PACE, MOST, BreakerRule, Charge, Gate, GateRule, Verdict
from limpet.core.limits.period import began_ms

NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


def charge(gate: Gate, costs: list[int], token: int, now_ms: int) -> tuple[Gate, list[Charge]]:
    """Take what `costs` need from the gate; the answer has one Charge per job, empty when nothing is counted."""
    rule = gate.rule
    slot, probe = max_concurrency(gate, now_ms) is not None, bool(gate.open_until_ms)
    counted = rule.interval_us is not None or rule.cap is not None
    if not costs or not (slot or probe or counted or rule.breaker is not None):
        return gate, []
    full_at_us, used = gate.full_at_us, gate.used
    if rule.interval_us is not None:
        full_at_us = later_us(max(full_at_us, now_ms * 1000), sum(costs), token_us(gate, rule.interval_us, now_ms))
    if slot:
        used += len(costs)
    charged = [Charge(rule.key, slot, cost if counted else 0, probe) for cost in costs]
    gate = replace(gate, used=used, full_at_us=full_at_us, probe_token=token if probe else gate.probe_token)
    return _reserve(gate, sum(costs), 0, now_ms), charged


def falls_short(gate: Gate, cost: int, now_ms: int) -> Gate:
    """The gate after a job of this cost, which nothing else stops, did not fit its budget: nobody passes that job."""
    return gate if budget_left(gate, now_ms) >= max(1, cost) else _reserve(gate, 0, max(1, cost), now_ms)


def stop_waiting(gate: Gate, cost: int) -> Gate:
    """The gate after a job of this cost has left those who wait: a budget that was shut for it looks at the next."""
    return replace(gate, reserved_for=0) if gate.reserved_for and gate.reserved_for == max(1, cost) else gate


def _reserve(gate: Gate, cost: int, reserved_for: int, now_ms: int) -> Gate:
    rule = gate.rule
    if rule.cap is None or rule.period is None:
        return gate
    spent = gate.spent if is_current(gate, now_ms) else 0
    period_ms = max(gate.period_ms, began_ms(rule.period, now_ms))
    return replace(gate, period_ms=period_ms, spent=min(MOST, spent + cost), reserved_for=reserved_for)


def give_back(
    gate: Gate,
    taken: Charge,
    *,
    token: int,
    verdict: Verdict,
    unstarted: bool,
    now_ms: int,
    charged_at_ms: int | None = None,
    actual_cost: int | None = None,
    refunded_in_this_batch: Mapping[int, int] = NOTHING,
) -> Gate:
    """What the gate looks like after a job that was charged `taken` has ended.

    Slots always return; what was counted stays, unless the job never started or its actual cost is known.
    Only ok and failed teach a breaker. `refunded_in_this_batch`: what the other jobs of this settlement returned to the
    rate (`returned_us`).
    """
    if taken.slot:
        gate = replace(gate, used=max(0, gate.used - 1))
    if unstarted:
        actual_cost = 0
    if actual_cost is not None:
        charged_at_ms = now_ms if charged_at_ms is None else charged_at_ms
        gate = _correct(gate, taken.cost, actual_cost, now_ms, charged_at_ms, refunded_in_this_batch)
    if taken.probe and gate.probe_token == token:
        gate = replace(gate, probe_token=0)
        if verdict == "ok":
            return replace(gate, open_until_ms=0, failed_at_ms=(), calls=(0, 0, 0, 0), by_hand=False)
        if verdict == "failed":
            return trip(gate, now_ms + (gate.rule.breaker or BreakerRule()).cooldown_ms)
        return gate
    return learn(gate, verdict, now_ms)


def returned_us(gate: Gate, taken: Charge, actual_cost: int | None, charged_at_ms: int) -> int:
    """For how long the rate would have stood for what the job was charged and did not cost."""
    if gate.rule.interval_us is None or actual_cost is None or actual_cost >= taken.cost:
        return 0
    return later_us(0, taken.cost - actual_cost, _charged_token_us(gate, gate.rule.interval_us, charged_at_ms))


def _refundable_us(returned: Mapping[int, int], now_ms: int) -> int:
    """What a rate gets back of all that was returned in one settlement: {when it was charged: for how long}.

    Since it was charged, time has brought back some of it, once for all of them: together they leave the rate as if it
    had stood still since the first. Those for which time has brought back more than they were charged stay out of it.
    """
    most = total = 0
    for charged_at_ms in sorted(returned, reverse=True):
        total = min(MOST, total + returned[charged_at_ms])
        most = max(most, total - max(0, now_ms - charged_at_ms) * 1000)
    return most


def _correct(
    gate: Gate, cost: int, actual_cost: int, now_ms: int, charged_at_ms: int, refunded_in_this_batch: Mapping[int, int]
) -> Gate:
    """The gate after a job that reserved `cost` turned out to cost `actual_cost`.

    A rate gets back only what time has not given back already: the bucket would overflow into others' starts.
    A budget is corrected in the period that was charged, as long as it lasts. What has reached MOST stays there: how
    much was cut off is not known, and what comes back would forgive what others took.
    """
    rule, more = gate.rule, actual_cost - cost
    if rule.interval_us is not None and more > 0:
        gate = replace(gate, full_at_us=later_us(max(gate.full_at_us, now_ms * 1000), more, rule.interval_us))
    elif rule.interval_us is not None and gate.full_at_us < MOST:
        own_us = later_us(0, -more, _charged_token_us(gate, rule.interval_us, charged_at_ms))
        with_it = {**refunded_in_this_batch, charged_at_ms: refunded_in_this_batch.get(charged_at_ms, 0) + own_us}
        back_us = _refundable_us(with_it, now_ms) - _refundable_us(refunded_in_this_batch, now_ms)
        gate = replace(gate, full_at_us=max(0, gate.full_at_us - back_us))
    if rule.period is not None and gate.period_ms == began_ms(rule.period, charged_at_ms) and gate.spent < MOST:
        gate = replace(gate, spent=min(MOST, max(0, gate.spent + more)))
    return gate


def _charged_token_us(gate: Gate, interval_us: int, charged_at_ms: int) -> int:
    """What a job of cost 1 was charged then, or less: the pace before a cut, or under a ceiling, is not known.

    Nothing when the rule was changed since: this bucket was not charged, and others would start on what came back.
    """
    if charged_at_ms <= gate.rule_changed_at_ms:
        return 0
    if charged_at_ms <= gate.paced_at_ms:
        return interval_us
    return token_us(replace(gate, ceiling=FULL_PACE), interval_us, charged_at_ms)


def reported_cost(rule: GateRule, spent: Mapping[str, int], *, unfinished: bool) -> int | None:
    """What a job cost at a gate by its own account; None: what it had reserved stands.

    Of one that was put off or dropped (`unfinished`) a budget gets back what it does not own up to.
    """
    said = spent.get(rule.unit)
    return 0 if said is None and unfinished and rule.cap is not None else said
