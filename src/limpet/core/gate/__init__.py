"""Decides whether a gate lets jobs through: pauses, holds, concurrency, rates, budgets and breakers as integers.

Every engine keeps these numbers and does this arithmetic inside its atomic claim; the vectors in
`limpet_contract.gate_vectors` can be run against each of them.
"""

from __future__ import annotations

from limpet.core.gate.admission import (
    RAMP_JOBS,
    RAMP_MS,
    UNLIMITED,
    admits,
    budget_left,
    fastest_at_ms,
    is_counting,
    is_shut,
    max_concurrency,
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
from limpet.core.gate.charging import NOTHING, charge, falls_short, give_back, reported_cost, returned_us, stop_waiting
from limpet.core.gate.record import (
    FOREVER_MS,
    FULL_PACE,
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
    "FULL_PACE",
    "MOST",
    "NOTHING",
    "RAMP_JOBS",
    "RAMP_MS",
    "UNLIMITED",
    "BreakerRule",
    "Charge",
    "Gate",
    "GateChange",
    "GateRule",
    "Pause",
    "Verdict",
    "admits",
    "apply_change",
    "budget_left",
    "charge",
    "counted",
    "cut_off",
    "falls_short",
    "fastest_at_ms",
    "give_back",
    "hold",
    "is_blank",
    "is_counting",
    "is_shut",
    "learn",
    "max_concurrency",
    "opens_at_ms",
    "opens_sooner",
    "pace",
    "push_back",
    "reported_cost",
    "reset",
    "returned_us",
    "room",
    "slots",
    "stop_waiting",
    "tightest",
    "tokens",
    "trip",
]
