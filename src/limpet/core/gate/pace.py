"""How fast a gate goes after a pushback: slots and the rate are multiplied by its pace, which climbs again."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from limpet.core.gate.record import FULL_PACE, Gate

RAMP_MS: Final = 10_000  # how long a ceiling takes to come back after a pushback


def pace(gate: Gate, now_ms: int) -> int:
    """How fast the gate goes now, in thousandths: it climbs evenly from where it was at the last pushback."""
    if gate.rule.floor is None:
        return min(FULL_PACE, gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL_PACE // RAMP_MS)
    climbed = gate.pace + max(0, now_ms - gate.paced_at_ms) * FULL_PACE // gate.rule.climb_ms
    return min(FULL_PACE, max(gate.rule.floor, min(gate.ceiling, climbed)))


def pace_factor(gate: Gate, now_ms: int) -> int:
    """What a token of a rate is worth, in thousandths: less while an adaptive gate goes slower."""
    return FULL_PACE if gate.rule.floor is None else max(1, pace(gate, now_ms))


def climbed_at_ms(gate: Gate, to: int) -> int:
    """When the gate goes that fast, if there is no further pushback."""
    climb_ms = RAMP_MS if gate.rule.floor is None else gate.rule.climb_ms
    return gate.paced_at_ms + -(-(to - gate.pace) * climb_ms // FULL_PACE)


def fastest_at_ms(gate: Gate) -> int:
    """When the gate goes as fast as it may, if there is no further pushback."""
    return climbed_at_ms(gate, FULL_PACE if gate.rule.floor is None else max(gate.rule.floor, gate.ceiling))


def slow_down(gate: Gate, token: int, now_ms: int) -> Gate:
    """The gate after a pushback of the job under `token`, already held: it climbs from the end of the hold.

    An adaptive gate goes half as fast as it did, once for all the jobs that were claimed before; others begin at zero.
    """
    if token <= gate.last_cut_token:
        slower = gate.pace < FULL_PACE
        return replace(gate, paced_at_ms=max(gate.paced_at_ms, gate.held_until_ms)) if slower else gate
    cut = 0 if gate.rule.floor is None else max(gate.rule.floor, pace(gate, now_ms) // 2)
    return replace(gate, pace=cut, paced_at_ms=gate.held_until_ms, last_cut_token=(now_ms + 1) * 2048 - 1)


def pace_is_blank(gate: Gate, now_ms: int) -> bool:
    """Whether the gate goes at its full pace, and may."""
    return pace(gate, now_ms) == gate.ceiling == FULL_PACE
