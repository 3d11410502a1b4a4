"""How much a gate lets through now, and when it will let through more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from limpet.core.gate.record import FOREVER_MS, FULL_PACE, MOST, Gate
from limpet.core.limits.period import began_ms, ends_ms

UNLIMITED: Final = 1 << 30  # the room of a gate that stops nobody
RAMP_MS: Final = 10_000  # how long a ceiling takes to come back after somebody pushed back
RAMP_JOBS: Final = 20  # so many at once a gate without numbers has climbed to, before it counts nobody again


def room(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the gate admits now; UNLIMITED when it has no say."""
    if gate.paused is not None or gate.held_until_ms > now_ms:
        return 0
    free = UNLIMITED
    rule = gate.rule
    if max_concurrency(gate, now_ms) is not None:
        free = max(0, slots(gate, now_ms) - gate.used)
    if rule.interval_us is not None:
        free = min(free, _rate_room(gate, now_ms))
    if rule.cap is not None:
        free = min(free, _budget_room(gate, now_ms))
    if gate.open_until_ms:
        free = min(free, 0 if gate.open_until_ms > now_ms or gate.probe_token else 1)
    return free


def is_shut(gate: Gate, now_ms: int) -> bool:
    """Whether nobody passes, whatever the numbers say: it is paused or held, or its breaker is open."""
    is_open = gate.open_until_ms > now_ms or (gate.open_until_ms > 0 and gate.probe_token != 0)
    return is_open or gate.paused is not None or gate.held_until_ms > now_ms


def tokens(gate: Gate, now_ms: int) -> int:
    """Whole tokens in the rate bucket now; below zero while a costly job is being paid off."""
    interval = gate.rule.interval_us
    if interval is None:
        return UNLIMITED
    debt_us = max(0, gate.full_at_us - now_ms * 1000)
    return gate.rule.burst - -(-debt_us // interval)


def pace(gate: Gate, now_ms: int) -> int:
    """How fast the gate goes now, in thousandths: it climbs evenly from where it was when somebody pushed back."""
    if gate.rule.floor is None:
        return min(FULL_PACE, gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL_PACE // RAMP_MS)
    climbed = gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL_PACE // gate.rule.climb_ms
    return min(FULL_PACE, max(gate.rule.floor, min(gate.ceiling, climbed)))


def max_concurrency(gate: Gate, now_ms: int) -> int | None:
    """How many jobs may run at once when the gate goes at its full pace; None when it counts nobody.

    A gate without numbers that somebody pushed back counts those who start while it climbs.
    """
    rule = gate.rule
    if rule.concurrency is not None or rule.interval_us is not None or rule.cap is not None:
        return rule.concurrency
    return RAMP_JOBS if gate.pace < FULL_PACE and pace(gate, now_ms) < FULL_PACE else None


def is_counting(gate: Gate, now_ms: int) -> bool:
    """Whether the gate counts those who pass: they are never held ahead of time."""
    rule = gate.rule
    return rule.interval_us is not None or rule.cap is not None or max_concurrency(gate, now_ms) is not None


def slots(gate: Gate, now_ms: int) -> int:
    """How many jobs may run at once, at the pace that the gate goes now: one, unless none ever may."""
    most = max_concurrency(gate, now_ms) or 0
    return max(min(1, most), most * pace(gate, now_ms) // FULL_PACE)


def _rate_room(gate: Gate, now_ms: int) -> int:
    """How many jobs of cost 1 the rate admits now: each of an adaptive gate that goes slower takes more of a token."""
    whole = tokens(gate, now_ms)
    return whole if whole < 1 else (whole - 1) * pace_factor(gate, now_ms) // FULL_PACE + 1


def pace_factor(gate: Gate, now_ms: int) -> int:
    """What a token is worth at a rate: less while an adaptive gate goes slower."""
    return FULL_PACE if gate.rule.floor is None else max(1, pace(gate, now_ms))


def token_us(gate: Gate, interval_us: int, now_ms: int) -> int:
    """How long what a job of cost 1 takes of the rate needs to come back."""
    return min(MOST, -(-interval_us * FULL_PACE // pace_factor(gate, now_ms)))


def later_us(from_us: int, count: int, interval_us: int) -> int:
    """When so many tokens have come back from then on; what cannot be counted is as late as can be."""
    return min(MOST, from_us + count * interval_us)


def budget_left(gate: Gate, now_ms: int) -> int:
    """What is left of the budget in the current period; below zero when jobs cost more than they had reserved."""
    if gate.rule.cap is None:
        return UNLIMITED
    return gate.rule.cap - (gate.spent if is_current(gate, now_ms) else 0)


def _budget_room(gate: Gate, now_ms: int) -> int:
    """What is left, unless somebody waits for more than that: a large job is not starved by smaller ones."""
    free = budget_left(gate, now_ms)
    wanted = gate.reserved_for if is_current(gate, now_ms) else 0
    return free if free >= wanted else 0


def is_current(gate: Gate, now_ms: int) -> bool:
    """Whether the period that is counted is the one that it is now, or a later one: no clock that goes back refills."""
    period = gate.rule.period
    return period is not None and gate.period_ms >= began_ms(period, now_ms)


def opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When a shut gate may admit again by the passing of time alone; None when only an event can open it."""
    if gate.paused is not None:
        return None
    at = max(now_ms, gate.held_until_ms)
    rule = gate.rule
    most = max_concurrency(gate, now_ms)
    if most is not None and gate.used >= slots(gate, now_ms):
        wanted = -(-(gate.used + 1) * FULL_PACE // max(1, most))
        if rule.concurrency is None:
            wanted = min(FULL_PACE, wanted)  # then it counts nobody
        if not most or wanted > FULL_PACE or (rule.floor is not None and wanted > max(rule.floor, gate.ceiling)):
            return None
        at = max(at, _climbed_at_ms(gate, wanted))
    if gate.open_until_ms:
        if gate.probe_token or gate.open_until_ms >= FOREVER_MS:
            return None
        at = max(at, gate.open_until_ms)
    if rule.interval_us is not None:
        one_token_us = gate.full_at_us - (rule.burst - 1) * rule.interval_us
        at = max(at, -(-one_token_us // 1000))
    if rule.period is not None and _budget_room(gate, now_ms) <= 0:
        at = max(at, ends_ms(rule.period, max(now_ms, gate.period_ms)))
    return at


def opens_sooner(before: Gate, after: Gate, now_ms: int) -> bool:
    """Whether a gate that was shut, and still is, now opens sooner than whoever waits for it has been told."""
    if room(before, now_ms) > 0 or room(after, now_ms) > 0:
        return False
    was_ms, is_ms = opens_at_ms(before, now_ms), opens_at_ms(after, now_ms)
    return is_ms is not None and (was_ms is None or is_ms < was_ms)


def fastest_at_ms(gate: Gate) -> int:
    """When the gate goes as fast as it may, if nobody pushes back again."""
    return _climbed_at_ms(gate, FULL_PACE if gate.rule.floor is None else max(gate.rule.floor, gate.ceiling))


def _climbed_at_ms(gate: Gate, to: int) -> int:
    """When the gate goes that fast, if nobody pushes back again."""
    climb_ms = RAMP_MS if gate.rule.floor is None else gate.rule.climb_ms
    return gate.paced_at_ms + -(-(to - gate.pace) * climb_ms // FULL_PACE)


def admits(gate: Gate, costs: list[int], now_ms: int) -> int:
    """How many jobs from the front of `costs` pass.

    Each needs one whole token of a rate, where the last may leave a debt, and all that it costs of a budget.
    """
    limit = min(room(gate, now_ms), len(costs))
    rule = gate.rule
    if limit <= 0 or (rule.interval_us is None and rule.cap is None):
        return max(0, limit)
    token, money = pace_factor(gate, now_ms), budget_left(gate, now_ms)
    rated = tokens(gate, now_ms) * token
    for count, cost in enumerate(costs[:limit]):
        if rule.interval_us is not None and rated < token:
            return count
        if rule.cap is not None and money < max(1, cost):
            return count
        rated, money = rated - cost * FULL_PACE, money - cost
    return limit


def tightest(gates: Iterable[Gate]) -> int:
    """How many jobs may run at once under the tightest of these; 0 when none of them says so."""
    return min((gate.rule.concurrency for gate in gates if gate.rule.concurrency is not None), default=0)
