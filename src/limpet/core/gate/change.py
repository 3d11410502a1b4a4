"""What operators, declarations and the other side's pushback make of a gate."""

from __future__ import annotations

from msgspec.structs import replace

from limpet.core.gate.admission import is_current, later_us, pace
from limpet.core.gate.breaker import remembers, reset, trip
from limpet.core.gate.record import FOREVER_MS, FULL_PACE, Gate, GateChange, GateRule


def hold(gate: Gate, until_ms: int) -> Gate:
    """Admit nobody before `until_ms`; a longer hold stays."""
    return replace(gate, held_until_ms=max(gate.held_until_ms, until_ms))


def push_back(gate: Gate, until_ms: int, token: int, now_ms: int) -> Gate:
    """The gate after somebody told the job under `token` to come back later: it is held, and goes slower after that.

    A rate begins again with one token, a ceiling with one job, and so does a gate without numbers; all climb. An
    adaptive gate goes half as fast as it did, once for all the jobs that were claimed before.
    """
    rule = gate.rule
    gate = hold(gate, until_ms)
    if rule.interval_us is not None:
        one_token_us = later_us(gate.held_until_ms * 1000, rule.burst - 1, rule.interval_us)
        gate = replace(gate, full_at_us=max(gate.full_at_us, one_token_us))
    if token <= gate.last_cut_token:
        return replace(gate, paced_at_ms=max(gate.paced_at_ms, gate.held_until_ms)) if gate.pace < FULL_PACE else gate
    slower = 0 if rule.floor is None else max(rule.floor, pace(gate, now_ms) // 2)
    return replace(gate, pace=slower, paced_at_ms=gate.held_until_ms, last_cut_token=(now_ms + 1) * 2048 - 1)


def apply_change(gate: Gate | None, change: GateChange, now_ms: int) -> Gate:
    """The gate after an operator's change; a gate that was not there starts with a rule that allows all."""
    gate = gate if gate is not None else Gate(GateRule(change.key))
    if change.clear:
        gate = replace(gate, declared=True)
    if change.rule is not None and (gate.declared or not change.declared):
        if gate.rule.interval_us is not None or gate.rule.cap is not None:  # or else nobody was charged
            gate = replace(gate, rule_changed_at_ms=now_ms)
        full_at_us = _full_at_us(gate, change.rule, now_ms)
        gate = replace(gate, rule=change.rule, declared=change.declared, full_at_us=full_at_us, reserved_for=0)
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
    if change.reset:
        if gate.rule.interval_us is not None:  # one may go at once, however far somebody had pushed it back
            one_token_us = later_us(now_ms * 1000, gate.rule.burst - 1, gate.rule.interval_us)
            gate = replace(gate, full_at_us=min(gate.full_at_us, one_token_us), rule_changed_at_ms=now_ms)
        gate = replace(
            reset(gate),
            held_until_ms=0,
            reserved_for=0,
            pace=FULL_PACE,
            ceiling=FULL_PACE,
            paced_at_ms=0,
            last_cut_token=0,
        )
    return gate


def _full_at_us(gate: Gate, rule: GateRule, now_ms: int) -> int:
    """When the bucket is full under another rate: tokens that were taken stay taken, and come back at the new rate.

    A smaller bucket is as full as the larger one was, in thousandths; or it would be in debt for what it never held.
    """
    old = gate.rule
    if old.interval_us is None or rule.interval_us is None:
        return 0
    begins_us = max(now_ms, gate.held_until_ms) * 1000
    if gate.full_at_us <= begins_us or (old.interval_us, old.burst) == (rule.interval_us, rule.burst):
        return gate.full_at_us
    missing = -(-(gate.full_at_us - begins_us) // old.interval_us)
    if missing > old.burst > rule.burst:
        missing -= old.burst - rule.burst
    elif old.burst > rule.burst:
        thousandths = -(-missing * FULL_PACE // old.burst)
        missing = min(missing, -(-thousandths * rule.burst // FULL_PACE))
    return later_us(begins_us, missing, rule.interval_us)


def is_blank(gate: Gate, now_ms: int) -> bool:
    """True when forgetting the gate changes nothing, so a janitor may delete it."""
    return (
        gate.paused is None
        and not gate.draining
        and gate.declared
        and gate.used == 0
        and gate.open_until_ms == 0
        and gate.held_until_ms <= now_ms
        and gate.full_at_us <= now_ms * 1000
        and not ((gate.spent or gate.announced_marks) and is_current(gate, now_ms))
        and pace(gate, now_ms) == gate.ceiling == FULL_PACE
        and not remembers(gate, now_ms)
    )
