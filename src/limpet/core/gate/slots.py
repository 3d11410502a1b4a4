"""How many jobs run at once under a gate, at the pace that it goes now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from limpet.core.gate.pace import climbed_at_ms, pace
from limpet.core.gate.record import FULL_PACE, UNLIMITED, Gate

RAMP_JOBS: Final = 20  # concurrent jobs that a gate without numbers climbs to, before it stops counting


def max_concurrency(gate: Gate, now_ms: int) -> int | None:
    """How many jobs may run at once when the gate goes at its full pace; None when it does not count them.

    A gate without numbers counts the jobs that start while it climbs after a pushback.
    """
    rule = gate.rule
    if rule.concurrency is not None or rule.interval_us is not None or rule.cap is not None:
        return rule.concurrency
    return RAMP_JOBS if gate.pace < FULL_PACE and pace(gate, now_ms) < FULL_PACE else None


def slots(gate: Gate, now_ms: int) -> int:
    """How many jobs may run at once, at the pace that the gate goes now: one, unless none ever may."""
    most = max_concurrency(gate, now_ms) or 0
    return max(min(1, most), most * pace(gate, now_ms) // FULL_PACE)


def slot_room(gate: Gate, now_ms: int) -> int:
    """How many slots are free."""
    return UNLIMITED if max_concurrency(gate, now_ms) is None else max(0, slots(gate, now_ms) - gate.used)


def slot_opens_at_ms(gate: Gate, now_ms: int) -> int | None:
    """When the pace has climbed to one slot more; None when only the end of a job frees one."""
    most = max_concurrency(gate, now_ms)
    if most is None or gate.used < slots(gate, now_ms):
        return now_ms
    rule, wanted = gate.rule, -(-(gate.used + 1) * FULL_PACE // max(1, most))
    if rule.concurrency is None:
        wanted = min(FULL_PACE, wanted)  # then it counts nothing
    if not most or wanted > FULL_PACE or (rule.floor is not None and wanted > max(rule.floor, gate.ceiling)):
        return None
    return climbed_at_ms(gate, wanted)


def take_slots(gate: Gate, count: int) -> Gate:
    """The gate after `count` jobs have started."""
    return replace(gate, used=gate.used + count)


def free_slot(gate: Gate) -> Gate:
    """The gate after one of them has ended."""
    return replace(gate, used=max(0, gate.used - 1))


def tightest(gates: Iterable[Gate]) -> int:
    """How many jobs may run at once under the tightest of these; 0 when none of them says so."""
    return min((gate.rule.concurrency for gate in gates if gate.rule.concurrency is not None), default=0)
