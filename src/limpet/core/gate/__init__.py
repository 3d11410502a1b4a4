"""Decides whether a gate lets jobs through: pauses, holds, concurrency, rates, budgets and breakers as integers.

One module for each mechanism, and `gate` for what they do together. Every engine keeps these numbers and does this
arithmetic inside its atomic claim, in files of the same names; the vectors in `limpet_contract.gate_vectors` can be run
against each of them.
"""

from __future__ import annotations

from limpet.core.gate.breaker import counted, cut_off, learn, reset, trip
from limpet.core.gate.bucket import tokens
from limpet.core.gate.budget import budget_left, falls_short, stop_waiting
from limpet.core.gate.gate import (
    NOTHING,
    admits,
    apply_change,
    charge,
    give_back,
    is_blank,
    is_counting,
    is_shut,
    opens_at_ms,
    opens_sooner,
    push_back,
    reported_cost,
    returned_us,
    room,
)
from limpet.core.gate.pace import RAMP_MS, fastest_at_ms, pace
from limpet.core.gate.record import (
    FOREVER_MS,
    FULL_PACE,
    MOST,
    UNLIMITED,
    BreakerRule,
    Charge,
    Gate,
    GateChange,
    GateRule,
    Pause,
    Verdict,
)
from limpet.core.gate.slots import RAMP_JOBS, max_concurrency, slots, tightest
from limpet.core.gate.stop import hold

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
