"""Decides whether a gate lets jobs through: pauses, holds, concurrency, rates, budgets and breakers as integers.

One module for each mechanism, and `gate` for what they do together. Every engine keeps these numbers and does this
arithmetic inside its atomic claim, in files of the same names; the vectors in `limpet_contract.gate_vectors` can be run
against each of them.
"""

from __future__ import annotations

from limpet.core.gate.breaker import (
    CLOSED,
    COUNTING,
    OPEN,
    WorstFirst,
    by_key,
    counted,
    cut_off,
    learn,
    rank,
    rank_key,
    reset,
    trip,
    under_own,
)
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
    is_silent,
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
    MOST_BREAKERS,
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
    "CLOSED",
    "COUNTING",
    "FOREVER_MS",
    "FULL_PACE",
    "MOST",
    "MOST_BREAKERS",
    "NOTHING",
    "OPEN",
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
    "WorstFirst",
    "admits",
    "apply_change",
    "budget_left",
    "by_key",
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
    "is_silent",
    "learn",
    "max_concurrency",
    "opens_at_ms",
    "opens_sooner",
    "pace",
    "push_back",
    "rank",
    "rank_key",
    "reported_cost",
    "reset",
    "returned_us",
    "room",
    "slots",
    "stop_waiting",
    "tightest",
    "tokens",
    "trip",
    "under_own",
]
