"""The tokens of a rate: one comes back per interval, `burst` of them fill the bucket, a costly job leaves a debt."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from limpet.core.gate.pace import pace_factor
from limpet.core.gate.record import FULL_PACE, MOST, UNLIMITED, Gate, GateRule


def tokens(gate: Gate, now_ms: int) -> int:
    """Whole tokens in the bucket now; below zero while a costly job is being paid off."""
    interval = gate.rule.interval_us
    if interval is None:
        return UNLIMITED
    debt_us = max(0, gate.full_at_us - now_ms * 1000)
    return gate.rule.burst - -(-debt_us // interval)


def rate_room(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the rate admits now: each of an adaptive gate that goes slower takes more of a token."""
    if gate.rule.interval_us is None:
        return UNLIMITED
    whole = tokens(gate, now_ms)
    return whole if whole < 1 else (whole - 1) * pace_factor(gate, now_ms) // FULL_PACE + 1


def rate_opens_at_ms(gate: Gate, now_ms: int) -> int:
    """When one whole token is there."""
    rule = gate.rule
    if rule.interval_us is None:
        return now_ms
    return -(-(gate.full_at_us - (rule.burst - 1) * rule.interval_us) // 1000)


def admitted_by_rate(gate: Gate, costs: list[int], now_ms: int) -> int:
    """How many jobs from the front of `costs` pass: each needs one whole token, and the last may leave a debt."""
    token = pace_factor(gate, now_ms)
    worth = tokens(gate, now_ms) * token
    for count, cost in enumerate(costs):
        if worth < token:
            return count
        worth -= cost * FULL_PACE
    return len(costs)


def take_tokens(gate: Gate, interval_us: int, cost: int, now_ms: int) -> Gate:
    """The gate after jobs that cost so much have started, at the pace that it goes now."""
    return _taken(gate, cost, _token_us(gate, interval_us, now_ms), now_ms)


def rate_returned_us(gate: Gate, cost: int, actual_cost: int | None, charged_at_ms: int) -> int:
    """For how long the rate would have stood for what a job was charged and did not cost."""
    if gate.rule.interval_us is None or actual_cost is None or actual_cost >= cost:
        return 0
    return _later_us(0, cost - actual_cost, _charged_token_us(gate, gate.rule.interval_us, charged_at_ms))


def correct_tokens(
    gate: Gate,
    interval_us: int,
    cost: int,
    actual_cost: int,
    now_ms: int,
    charged_at_ms: int,
    refunded: Mapping[int, int],
) -> Gate:
    """The gate after a job that was charged `cost` turned out to cost `actual_cost`.

    A rate gets back only what time has not given back already: the bucket would overflow into others' starts. What has
    reached MOST stays there: how much was cut off is not known, and what comes back would forgive what others took.
    """
    if actual_cost > cost:
        return _taken(gate, actual_cost - cost, interval_us, now_ms)
    if gate.full_at_us >= MOST:
        return gate
    own_us = _later_us(0, cost - actual_cost, _charged_token_us(gate, interval_us, charged_at_ms))
    with_it = {**refunded, charged_at_ms: refunded.get(charged_at_ms, 0) + own_us}
    back_us = _refundable_us(with_it, now_ms) - _refundable_us(refunded, now_ms)
    return replace(gate, full_at_us=max(0, gate.full_at_us - back_us))


def keep_one_token(gate: Gate, from_ms: int) -> int:
    """When the bucket is full again if it has one token at that instant."""
    return _later_us(from_ms * 1000, gate.rule.burst - 1, gate.rule.interval_us or 0)


def full_at_us_under(gate: Gate, rule: GateRule, now_ms: int) -> int:
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
    return _later_us(begins_us, missing, rule.interval_us)


def _taken(gate: Gate, count: int, token_us: int, now_ms: int) -> Gate:
    return replace(gate, full_at_us=_later_us(max(gate.full_at_us, now_ms * 1000), count, token_us))


def _token_us(gate: Gate, interval_us: int, now_ms: int) -> int:
    """How long what a job of cost 1 takes of the rate needs to come back."""
    return min(MOST, -(-interval_us * FULL_PACE // pace_factor(gate, now_ms)))


def _charged_token_us(gate: Gate, interval_us: int, charged_at_ms: int) -> int:
    """What a job of cost 1 was charged then, or less: the pace before a cut, or under a ceiling, is not known.

    Nothing when the rule was changed since: this bucket was not charged, and others would start on what came back.
    """
    if charged_at_ms <= gate.rule_changed_at_ms:
        return 0
    if charged_at_ms <= gate.paced_at_ms:
        return interval_us
    return _token_us(replace(gate, ceiling=FULL_PACE), interval_us, charged_at_ms)


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


def _later_us(from_us: int, count: int, interval_us: int) -> int:
    """When `count` tokens have come back, from `from_us` on; at most the largest number that can be stored."""
    return min(MOST, from_us + count * interval_us)
