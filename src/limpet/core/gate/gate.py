"""The gate as a whole: what its parts (stop, slots, bucket, budget, breaker) admit, charge and give back together.

A job passes when every part has room for it; a shut gate opens when the last of them does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from limpet.core.gate.breaker import (
    breaker_opens_at_ms,
    breaker_room,
    end_probe,
    is_open,
    learn,
    remembers,
    reset,
    trip,
)
from limpet.core.gate.bucket import (
    admitted_by_rate,
    correct_tokens,
    full_at_us_under,
    keep_one_token,
    rate_opens_at_ms,
    rate_returned_us,
    rate_room,
    take_tokens,
)
from limpet.core.gate.budget import (
    admitted_by_budget,
    budget_is_blank,
    budget_opens_at_ms,
    budget_room,
    correct_budget,
    reserve,
)
from limpet.core.gate.pace import pace_is_blank, slow_down
from limpet.core.gate.record import FOREVER_MS, FULL_PACE, UNLIMITED, Charge, Gate, GateChange, GateRule, Verdict
from limpet.core.gate.slots import free_slot, max_concurrency, slot_opens_at_ms, slot_room, take_slots
from limpet.core.gate.stop import hold, is_stopped, stop_opens_at_ms

NOTHING: Final[Mapping[int, int]] = MappingProxyType({})

_OPENINGS: Final[tuple[Callable[[Gate, int], int | None], ...]] = (
    stop_opens_at_ms,
    slot_opens_at_ms,
    rate_opens_at_ms,
    budget_opens_at_ms,
    breaker_opens_at_ms,
)


def room(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the gate admits now; UNLIMITED when it has no say. Below zero under a debt."""
    if is_stopped(gate, now_ms):
        return 0
    return min(slot_room(gate, now_ms), rate_room(gate, now_ms), budget_room(gate, now_ms), breaker_room(gate, now_ms))


def is_shut(gate: Gate, now_ms: int) -> bool:
    """Whether no job passes, whatever the numbers say: it is paused or held, or its breaker is open."""
    return is_stopped(gate, now_ms) or is_open(gate, now_ms)


def is_counting(gate: Gate, now_ms: int) -> bool:
    """Whether the gate counts the jobs that pass: they are never held ahead of time."""
    rule = gate.rule
    return rule.interval_us is not None or rule.cap is not None or max_concurrency(gate, now_ms) is not None


def is_silent(gate: Gate, now_ms: int) -> bool:
    """Whether the gate has no say now: it neither stops jobs, nor counts them, nor bounds how many may wait."""
    bounds = gate.draining or gate.rule.depth is not None or gate.rule.tenant_depth is not None
    return not bounds and room(gate, now_ms) >= UNLIMITED


def opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When a shut gate may admit again by the passing of time alone; None when only an event can open it."""
    latest = now_ms
    for opening_of in _OPENINGS:
        at_ms = opening_of(gate, now_ms)
        if at_ms is None:
            return None
        latest = max(latest, at_ms)
    return latest


def opens_sooner(before: Gate, after: Gate, now_ms: int) -> bool:
    """Whether a gate that was shut, and still is, now opens sooner than waiting workers were told."""
    if room(before, now_ms) > 0 or room(after, now_ms) > 0:
        return False
    was_ms, is_ms = opens_at_ms(before, now_ms), opens_at_ms(after, now_ms)
    return is_ms is not None and (was_ms is None or is_ms < was_ms)


def admits(gate: Gate, costs: list[int], now_ms: int) -> int:
    """How many jobs from the front of `costs` pass.

    Each needs one whole token of a rate, where the last may leave a debt, and all that it costs of a budget.
    """
    count = max(0, min(room(gate, now_ms), len(costs)))
    if gate.rule.interval_us is not None:
        count = admitted_by_rate(gate, costs[:count], now_ms)
    if gate.rule.cap is not None:
        count = admitted_by_budget(gate, costs[:count], now_ms)
    return count


def charge(gate: Gate, costs: list[int], token: int, now_ms: int) -> tuple[Gate, list[Charge]]:
    """Take what `costs` need from the gate; the answer has one Charge per job, empty when nothing is counted."""
    rule = gate.rule
    slot, probe = max_concurrency(gate, now_ms) is not None, bool(gate.open_until_ms)
    counted = rule.interval_us is not None or rule.cap is not None
    if not costs or not (slot or probe or counted or rule.breaker is not None):
        return gate, []
    if rule.interval_us is not None:
        gate = take_tokens(gate, rule.interval_us, sum(costs), now_ms)
    if slot:
        gate = take_slots(gate, len(costs))
    if probe:
        gate = replace(gate, probe_token=token)
    gate = reserve(gate, sum(costs), 0, now_ms)
    return gate, [Charge(rule.key, slot, cost if counted else 0, probe) for cost in costs]


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
        gate = free_slot(gate)
    if unstarted:
        actual_cost = 0
    if actual_cost is not None:
        charged_at_ms = now_ms if charged_at_ms is None else charged_at_ms
        interval_us = gate.rule.interval_us
        if interval_us is not None:
            gate = correct_tokens(
                gate, interval_us, taken.cost, actual_cost, now_ms, charged_at_ms, refunded_in_this_batch
            )
        gate = correct_budget(gate, taken.cost, actual_cost, charged_at_ms)
    if taken.probe and gate.probe_token == token:
        return end_probe(gate, verdict, now_ms)
    return learn(gate, verdict, now_ms)


def returned_us(gate: Gate, taken: Charge, actual_cost: int | None, charged_at_ms: int) -> int:
    """For how long the rate would have stood for what the job was charged and did not cost."""
    return rate_returned_us(gate, taken.cost, actual_cost, charged_at_ms)


def reported_cost(rule: GateRule, spent: Mapping[str, int], *, unfinished: bool) -> int | None:
    """What a job cost at a gate by its own report; None: what it had reserved stands.

    A budget gets back what a job that was put off or dropped (`unfinished`) did not report as spent.
    """
    reported = spent.get(rule.unit)
    return 0 if reported is None and unfinished and rule.cap is not None else reported


def push_back(gate: Gate, until_ms: int, token: int, now_ms: int) -> Gate:
    """The gate after a provider pushed back the job under `token`: it is held, then goes slower.

    A rate begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb.
    """
    gate = hold(gate, until_ms)
    if gate.rule.interval_us is not None:
        one_token_us = keep_one_token(gate, gate.held_until_ms)
        gate = replace(gate, full_at_us=max(gate.full_at_us, one_token_us))
    return slow_down(gate, token, now_ms)


def apply_change(gate: Gate | None, change: GateChange, now_ms: int) -> Gate:
    """The gate after an operator's change; a gate that was not there starts with a rule that allows all."""
    gate = gate if gate is not None else Gate(GateRule(change.key))
    if change.clear:
        gate = replace(gate, declared=True)
    if change.rule is not None and (gate.declared or not change.declared):
        gate = _ruled(gate, change.rule, change.declared, now_ms)
    if change.pause is not None:
        gate = replace(gate, paused=change.pause)
    if change.resume:
        gate = replace(gate, paused=None, draining=False)
    if change.drain is not None:
        gate = replace(gate, draining=change.drain)
    if change.hold_ms is not None:
        gate = hold(gate, now_ms + change.hold_ms)
    if change.ceiling is not None:
        gate = replace(gate, ceiling=max(1, min(FULL_PACE, change.ceiling)))
    if change.trip_ms is not None:
        gate = replace(trip(gate, min(FOREVER_MS, now_ms + change.trip_ms)), by_hand=True)
    return _reset(gate, now_ms) if change.reset else gate


def _ruled(gate: Gate, rule: GateRule, declared: bool, now_ms: int) -> Gate:
    """The gate under another rule."""
    if gate.rule.interval_us is not None or gate.rule.cap is not None:  # or else no job was charged
        gate = replace(gate, rule_changed_at_ms=now_ms)
    full_at_us = full_at_us_under(gate, rule, now_ms)
    return replace(gate, rule=rule, declared=declared, full_at_us=full_at_us, reserved_for=0)


def _reset(gate: Gate, now_ms: int) -> Gate:
    """The gate after an operator has opened it: nothing holds or slows it any more."""
    if gate.rule.interval_us is not None:  # one job may go at once, however far the rate was pushed back
        full_at_us = min(gate.full_at_us, keep_one_token(gate, now_ms))
        gate = replace(gate, full_at_us=full_at_us, rule_changed_at_ms=now_ms)
    gate = reset(gate)
    return replace(
        gate, held_until_ms=0, reserved_for=0, pace=FULL_PACE, ceiling=FULL_PACE, paced_at_ms=0, last_cut_token=0
    )


def is_blank(gate: Gate, now_ms: int) -> bool:
    """True when forgetting the gate changes nothing, so a janitor may delete it."""
    return (
        not is_stopped(gate, now_ms)
        and not gate.draining
        and gate.declared
        and gate.used == 0
        and gate.open_until_ms == 0
        and gate.full_at_us <= now_ms * 1000
        and budget_is_blank(gate, now_ms)
        and pace_is_blank(gate, now_ms)
        and not remembers(gate, now_ms)
    )
