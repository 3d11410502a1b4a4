"""Remembers what gates must answer about real costs and budgets: more of `limpet_contract.gate_vectors`."""

from __future__ import annotations

from typing import Final

from limpet.core.gate import MOST, GateChange, GateRule
from limpet.core.limits.period import DAY_MS, HOUR_MS
from limpet_contract.gate_vectors import KEY, T0, Ask, Change, End, Vector

# T0 is Tuesday, 2023-11-14, 22:13:20 UTC.
MIDNIGHT: Final = 1_700_006_400_000
MONDAY: Final = MIDNIGHT + 5 * DAY_MS
DECEMBER: Final = MIDNIGHT + 16 * DAY_MS
LEAP_DAY: Final = 1_709_164_800_000  # 2024-02-29

_TEN_A_DAY: Final = GateRule(KEY, cap=10, period="day")
_TEN_A_SECOND: Final = GateRule(KEY, interval_us=100_000, burst=5)

BUDGETS: Final[tuple[Vector, ...]] = (
    Vector(
        "a budget admits what fits whole, and the rest in the next period",
        _TEN_A_DAY,
        (
            Ask(T0, (4, 4, 4), 2, MIDNIGHT),
            Ask(MIDNIGHT - 1, (4,), 0, MIDNIGHT),
            Ask(MIDNIGHT, (4, 4, 4), 2, MIDNIGHT + DAY_MS),
        ),
    ),
    Vector(
        "no job passes the first job that did not fit",
        _TEN_A_DAY,
        (Ask(T0, (8, 3, 1), 1, MIDNIGHT), Ask(T0 + 1, (1,), 0, MIDNIGHT), Ask(MIDNIGHT, (1,), 1)),
    ),
    Vector(
        "a budget that is used up exactly is used up",
        _TEN_A_DAY,
        (Ask(T0, (10, 0), 1, MIDNIGHT), Ask(T0, (0,), 0, MIDNIGHT), Ask(MIDNIGHT, (0, 0), 2)),
    ),
    Vector(
        "what costs more than the whole budget waits, and so does what comes behind it",
        _TEN_A_DAY,
        (
            Ask(T0, (11, 1), 0, MIDNIGHT),
            Ask(MIDNIGHT, (11,), 0, MIDNIGHT + DAY_MS),
            Ask(MIDNIGHT, (1,), 0, MIDNIGHT + DAY_MS),
        ),
    ),
    Vector(
        "a job that did not fit is not waited for in the next period",
        _TEN_A_DAY,
        (Ask(T0, (11,), 0, MIDNIGHT), Ask(MIDNIGHT - 1, (1,), 0, MIDNIGHT), Ask(MIDNIGHT, (1,), 1)),
    ),
    Vector(
        "the unused part of a reservation comes back, and a job that waits for no more than that starts",
        _TEN_A_DAY,
        (
            Ask(T0, (6, 4, 3), 2, MIDNIGHT),
            End(T0 + 1, 0, "ok", actual_cost=4),
            Ask(T0 + 1, (2,), 0, MIDNIGHT),
            End(T0 + 2, 1, "ok", actual_cost=3),
            Ask(T0 + 2, (3, 1), 1, MIDNIGHT),
        ),
    ),
    Vector(
        "a job that costs more than it reserved is paid in full, and no job starts on credit",
        _TEN_A_DAY,
        (
            Ask(T0, (5,), 1),
            End(T0 + 1, 0, "ok", actual_cost=50),
            Ask(T0 + 2, (1,), 0, MIDNIGHT),
            Ask(MIDNIGHT, (10, 1), 1, MIDNIGHT + DAY_MS),
        ),
    ),
    Vector(
        "a job that never started costs a budget nothing, and one that is lost all it reserved",
        _TEN_A_DAY,
        (
            Ask(T0, (10,), 1),
            End(T0 + 1, 0, unstarted=True),
            Ask(T0 + 1, (10,), 1),
            End(T0 + 2, 1),
            Ask(T0 + 2, (1,), 0, MIDNIGHT),
        ),
    ),
    Vector(
        "what ends after its period changes nothing in the next",
        _TEN_A_DAY,
        (
            Ask(T0, (9,), 1),
            Ask(MIDNIGHT, (8,), 1),
            End(MIDNIGHT + 1, 0, "ok", actual_cost=1),
            Ask(MIDNIGHT + 1, (3,), 0, MIDNIGHT + DAY_MS),
            Change(MIDNIGHT + 1, GateChange(KEY, reset=True)),
            Ask(MIDNIGHT + 1, (2, 1), 1, MIDNIGHT + DAY_MS),
        ),
    ),
    Vector(
        "a larger cap counts at once, and what was spent stays spent",
        _TEN_A_DAY,
        (
            Ask(T0, (8, 4), 1, MIDNIGHT),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, cap=12, period="day"))),
            Ask(T0, (4, 1), 1, MIDNIGHT),
        ),
    ),
    Vector(
        "a clock that goes back refills no budget",
        _TEN_A_DAY,
        (
            Ask(MIDNIGHT, (8,), 1),
            Ask(MIDNIGHT - 1, (4,), 0, MIDNIGHT + DAY_MS),
            Change(MIDNIGHT, GateChange(KEY, reset=True)),
            Ask(MIDNIGHT - 1, (2,), 1),
            Ask(MIDNIGHT, (1,), 0, MIDNIGHT + DAY_MS),
        ),
    ),
    Vector(
        "another period begins to count from zero",
        _TEN_A_DAY,
        (
            Ask(T0, (8,), 1),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, cap=10, period="hour"))),
            Ask(T0, (9, 9), 1, T0 - T0 % HOUR_MS + HOUR_MS),
        ),
    ),
    Vector(
        "a minute is a minute of the clock",
        GateRule(KEY, cap=1, period="minute"),
        (Ask(T0, (1, 1), 1, T0 + 40_000), Ask(T0 + 40_000, (1,), 1)),
    ),
    Vector(
        "a week begins on Monday",
        GateRule(KEY, cap=1, period="week"),
        (Ask(T0, (1, 1), 1, MONDAY), Ask(MONDAY, (1,), 1)),
    ),
    Vector(
        "a month is a month of the calendar, in leap years too",
        GateRule(KEY, cap=1, period="month"),
        (
            Ask(T0, (1, 1), 1, DECEMBER),
            Ask(DECEMBER, (1, 1), 1, DECEMBER + 31 * DAY_MS),
            Ask(LEAP_DAY, (1, 1), 1, LEAP_DAY + DAY_MS),
        ),
    ),
    Vector(
        "a budget and a ceiling hold together",
        GateRule(KEY, concurrency=1, cap=10, period="day"),
        (Ask(T0, (6, 6), 1, None), End(T0, 0, "ok"), Ask(T0, (6,), 0, MIDNIGHT)),
    ),
    Vector(
        "a rate pays later for what a job cost more than it reserved",
        _TEN_A_SECOND,
        (Ask(T0, (2,), 1), End(T0, 0, "ok", actual_cost=12), Ask(T0, (1,), 0, T0 + 800), Ask(T0 + 800, (1,), 1)),
    ),
    Vector(
        "a rate gets back what a job did not use, as far as time has not given it back",
        _TEN_A_SECOND,
        (
            Ask(T0, (5,), 1),
            End(T0 + 200, 0, "ok", actual_cost=1),
            Ask(T0 + 200, (1, 1, 1, 1, 1), 4, T0 + 300),
        ),
    ),
    Vector(
        "a rate and a budget in one gate are both kept",
        GateRule(KEY, interval_us=100_000, burst=1, cap=3, period="day"),
        (
            Ask(T0, (2, 2), 1, MIDNIGHT),
            Change(T0, GateChange(KEY, reset=True)),
            Ask(T0 + 200, (1,), 1),
            Ask(T0 + 1_000, (1,), 0, MIDNIGHT),
        ),
    ),
    Vector(
        "what is spent is counted as far as engines count",
        GateRule(KEY, cap=1 << 50, period="day"),
        (
            Ask(T0, (1, 1, 5), 3),
            End(T0, 0, actual_cost=MOST),
            End(T0, 1, actual_cost=MOST),
            Ask(T0, (1,), 0, MIDNIGHT),
            Change(T0, GateChange(KEY, rule=GateRule(KEY, cap=MOST, period="day"))),
            Ask(T0, (1,), 0, MIDNIGHT),
            End(T0, 2, actual_cost=0),
            Ask(T0, (1,), 0, MIDNIGHT),
            Ask(MIDNIGHT, (1,), 1),
        ),
    ),
)
