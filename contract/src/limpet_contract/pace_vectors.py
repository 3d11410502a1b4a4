"""Remembers what gates must answer after pushback: more of `limpet_contract.gate_vectors`."""

from __future__ import annotations

from typing import Final

from limpet.core.gate import MOST, GateChange, GateRule
from limpet_contract.gate_vectors import KEY, T0, Ask, Change, CutOff, End, PushBack, Vector

_TEN_A_SECOND: Final = GateRule(KEY, interval_us=100_000, burst=10)
_ADAPTIVE: Final = GateRule(KEY, interval_us=100_000, burst=10, floor=100, climb_ms=100_000)
_EIGHT: Final = GateRule(KEY, concurrency=8)
_BARE: Final = GateRule(KEY)
_ADAPTIVE_EIGHT: Final = GateRule(KEY, concurrency=8, floor=250, climb_ms=80_000)


def _one(count: int) -> tuple[int, ...]:
    return (1,) * count


PACES: Final[tuple[Vector, ...]] = (
    Vector(
        "a rate that was pushed back is held, and begins again with one token",
        _TEN_A_SECOND,
        (
            Ask(T0, _one(3), 3),
            PushBack(T0, 0, T0 + 1_000),
            Ask(T0 + 999, _one(1), 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(5), 1, T0 + 1_100),
            Ask(T0 + 1_100, _one(5), 1, T0 + 1_200),
            Ask(T0 + 1_500, _one(5), 4, T0 + 1_600),
        ),
    ),
    Vector(
        "a ceiling that was pushed back begins again with one job, and is whole after ten seconds",
        _EIGHT,
        (
            Ask(T0, _one(8), 8),
            PushBack(T0, 0, T0 + 1_000),
            *(End(T0, job) for job in range(1, 8)),
            Ask(T0 + 1_000, _one(9), 1, T0 + 3_500),
            Ask(T0 + 3_499, _one(9), 0, T0 + 3_500),
            Ask(T0 + 3_500, _one(9), 1, T0 + 4_750),
            Ask(T0 + 11_000, _one(9), 6, None),
        ),
    ),
    Vector(
        "a key without numbers begins again with one job, and stops counting after ten seconds",
        _BARE,
        (
            Ask(T0, _one(30), 30),
            PushBack(T0, 0, T0 + 1_000),
            Ask(T0 + 999, _one(30), 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(30), 1, T0 + 2_000),
            Ask(T0 + 1_999, _one(30), 0, T0 + 2_000),
            Ask(T0 + 2_000, _one(30), 1, T0 + 2_500),
            End(T0 + 2_000, 30),
            Ask(T0 + 2_000, _one(30), 1, T0 + 2_500),
            Ask(T0 + 10_999, _one(30), 17, T0 + 11_000),
            Ask(T0 + 11_000, _one(30), 30),
            End(T0 + 11_000, 31),
            Ask(T0 + 11_000, _one(30), 30),
        ),
    ),
    Vector(
        "jobs from before the pushback that hold no slot give none back",
        _BARE,
        (
            Ask(T0, _one(2), 2),
            PushBack(T0, 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(9), 1, T0 + 2_000),
            End(T0 + 1_000, 1),
            Ask(T0 + 1_000, _one(9), 0, T0 + 2_000),
        ),
    ),
    Vector(
        "an adaptive rate goes half as fast after each pushback, and climbs evenly",
        _ADAPTIVE,
        (
            Ask(T0, _one(2), 2),
            PushBack(T0, 0, T0 + 1_000),
            Ask(T0 + 1_000, _one(9), 1, T0 + 1_200),
            Ask(T0 + 1_200, _one(9), 1, T0 + 1_400),
            PushBack(T0 + 1_300, 2, T0 + 2_000),
            Ask(T0 + 2_000, _one(9), 1, T0 + 2_399),
            Ask(T0 + 150_000, _one(20), 10, T0 + 150_100),
        ),
    ),
    Vector(
        "jobs that were claimed before a cut do not cut again",
        _ADAPTIVE,
        (
            Ask(T0, _one(4), 4),
            PushBack(T0 + 10, 0, T0 + 1_000),
            PushBack(T0 + 11, 1, T0 + 1_000),
            PushBack(T0 + 12, 2, T0 + 1_500),
            Ask(T0 + 1_500, _one(9), 1, T0 + 1_700),
        ),
    ),
    Vector(
        "an adaptive gate never goes slower than its floor",
        _ADAPTIVE_EIGHT,
        (
            Ask(T0, _one(1), 1),
            PushBack(T0, 0, T0 + 10),
            Ask(T0 + 10, _one(9), 4, T0 + 10_010),
            PushBack(T0 + 11, 1, T0 + 20),
            *(End(T0 + 11, job) for job in range(2, 5)),
            Ask(T0 + 20, _one(9), 2, T0 + 10_020),
            PushBack(T0 + 21, 5, T0 + 30),
            End(T0 + 21, 6),
            Ask(T0 + 30, _one(9), 2, T0 + 10_030),
        ),
    ),
    Vector(
        "a person resets the pace",
        _ADAPTIVE_EIGHT,
        (
            Ask(T0, _one(1), 1),
            PushBack(T0, 0, T0 + 10_000),
            Change(T0, GateChange(KEY, reset=True)),
            Ask(T0, _one(9), 8, None),
        ),
    ),
    Vector(
        "a ceiling of nothing admits no job, at any pace",
        GateRule(KEY, concurrency=0, floor=500),
        (
            Ask(T0, _one(1), 0, None),
            Change(T0, GateChange(KEY, ceiling=1)),
            Ask(T0, _one(1), 0, None),
        ),
    ),
    Vector(
        "a rate that a person resets lets one go at once",
        _TEN_A_SECOND,
        (
            Ask(T0, _one(1), 1),
            PushBack(T0, 0, T0 + 3_600_000),
            Change(T0, GateChange(KEY, reset=True)),
            Ask(T0, _one(5), 1, T0 + 100),
        ),
    ),
    Vector(
        "an adaptive gate goes no faster than the provider allows",
        _ADAPTIVE_EIGHT,
        (
            Change(T0, GateChange(KEY, ceiling=500)),
            Ask(T0 + 86_400_000, _one(9), 4, None),
            Change(T0 + 86_400_000, GateChange(KEY, ceiling=1_000)),
            Ask(T0 + 86_400_000, _one(9), 4, None),
            Change(T0 + 86_400_000, GateChange(KEY, ceiling=1)),
            *(End(T0 + 86_400_000, job) for job in range(8)),
            Ask(T0 + 86_400_000, _one(9), 2, None),
        ),
    ),
    Vector(
        "a gate that does not adapt goes as fast as it is declared",
        _EIGHT,
        (Change(T0, GateChange(KEY, ceiling=500)), Ask(T0, _one(9), 8, None)),
    ),
    Vector(
        "a costly job takes more of a slower rate",
        _ADAPTIVE,
        (
            Ask(T0, _one(1), 1),
            PushBack(T0, 0, T0 + 1_000),
            Ask(T0 + 2_000, (3, 3, 1), 2, T0 + 2_277),
        ),
    ),
    Vector(
        "where no money is left only the probe has anything new to say",
        _EIGHT,
        (
            Ask(T0, _one(4), 4),
            CutOff(T0, 0, T0 + 10_000),
            Ask(T0 + 1, _one(1), 0, T0 + 10_000),
            CutOff(T0 + 9_999, 1, T0 + 60_000),
            Ask(T0 + 9_999, _one(1), 0, T0 + 10_000),
            Ask(T0 + 10_000, _one(2), 1, None, probe=True),
            CutOff(T0 + 10_001, 2, T0 + 60_000),
            Ask(T0 + 10_001, _one(1), 0, None),
            CutOff(T0 + 10_002, 4, T0 + 20_000),
            CutOff(T0 + 10_003, 3, T0 + 60_000),
            Ask(T0 + 19_999, _one(1), 0, T0 + 20_000),
            Ask(T0 + 20_000, _one(2), 1, None, probe=True),
            End(T0 + 20_001, 5, "ok"),
            Ask(T0 + 20_001, _one(9), 8, None),
        ),
    ),
    Vector(
        "a job that is told that no money is left while no job probes shuts the gate again",
        _EIGHT,
        (
            Ask(T0, _one(2), 2),
            CutOff(T0, 0, T0 + 1_000),
            CutOff(T0 + 1_000, 1, T0 + 9_000),
            Ask(T0 + 8_999, _one(1), 0, T0 + 9_000),
            Ask(T0 + 9_000, _one(2), 1, None, probe=True),
            End(T0 + 9_001, 2, unstarted=True),
            Ask(T0 + 9_001, _one(2), 1, None, probe=True),
        ),
    ),
    Vector(
        "one a year at seven thousandths of its pace is charged to the microsecond",
        GateRule(KEY, interval_us=31_622_400_000_000, burst=1, floor=1),
        (
            Change(T0, GateChange(KEY, ceiling=7)),
            Ask(T0, _one(2), 1, T0 + 4_517_485_714_286),
        ),
    ),
    Vector(
        "one a year at a thousandth of its pace comes back where counting ends",
        GateRule(KEY, interval_us=31_622_400_000_000, burst=1, floor=1),
        (Change(T0, GateChange(KEY, ceiling=1)), Ask(T0, _one(2), 1, -(-MOST // 1000))),
    ),
)
