"""Decides whether a gate lets jobs through: pauses, holds, concurrency, rates, budgets and breakers as integers.

Every engine keeps these numbers and does this arithmetic inside its atomic claim; the vectors in
`limpet_contract.gate_vectors` can be run against each of them.
"""

from __future__ import annotations

from limpet.core.gate.admission import (
    LOTS,
    RAMP_JOBS,
    RAMP_MS,
    admits,
    fastest_at_ms,
    is_counting,
    is_shut,
    left,
    most_at_once,
    opens_at_ms,
    opens_sooner,
    pace,
    room,
    slots,
    tightest,
    tokens,
)
from limpet.core.gate.breaker import counted, cut_off, learn, reset, trip
from limpet.core.gate.change import apply_change, hold, is_blank, push_back
from limpet.core.gate.charging import NOTHING, charge, falls_short, give_back, give_up, real_cost, returned_us
from limpet.core.gate.record import (
    FOREVER_MS,
    FULL,
    MOST,
    BreakerRule,
    Charge,
    Gate,
    GateChange,
    GateRule,
    Pause,
    Verdict,
)

__all__ = [
    "FOREVER_MS",
    "FULL",
    "LOTS",
    "MOST",
    "NOTHING",
    "RAMP_JOBS",
    "RAMP_MS",
    "BreakerRule",
    "Charge",
    "Gate",
    "GateChange",
    "GateRule",
    "Pause",
    "Verdict",
    "admits",
    "apply_change",
    "charge",
    "counted",
    "cut_off",
    "falls_short",
    "fastest_at_ms",
    "give_back",
    "give_up",
    "hold",
    "is_blank",
    "is_counting",
    "is_shut",
    "learn",
    "left",
    "most_at_once",
    "opens_at_ms",
    "opens_sooner",
    "pace",
    "push_back",
    "real_cost",
    "reset",
    "returned_us",
    "room",
    "slots",
    "tightest",
    "tokens",
    "trip",
]
