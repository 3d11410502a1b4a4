"""Decides what is measured and at which size; the same for every engine and for peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Measure:
    """One measure of the adapters: its name there, and its options by size."""

    id: str
    name: str
    quick: Mapping[str, Any]
    full: Mapping[str, Any]
    tiny: Mapping[str, Any]  # for the test of the driver: as small as the measure allows
    runs: tuple[int, int] = (3, 5)  # quick, full


MEASURES: Final = (
    Measure("drain", "drain", {"jobs": 50_000}, {"jobs": 200_000}, {"jobs": 200}),
    Measure("steady", "steady", {"jobs": 50_000}, {"jobs": 200_000}, {"jobs": 200}),
    Measure(
        "bulk",
        "bulk",
        {"jobs": 40_000, "per_call": 5_000},
        {"jobs": 400_000, "per_call": 5_000},
        {"jobs": 200, "per_call": 100},
    ),
    Measure("single", "single", {"jobs": 2_000}, {"jobs": 20_000}, {"jobs": 20}),
    Measure(
        "callers",
        "callers",
        {"jobs": 20_000, "callers": 50},
        {"jobs": 200_000, "callers": 50},
        {"jobs": 100, "callers": 10},
    ),
    Measure("latency", "latency", {"jobs": 200}, {"jobs": 1_000}, {"jobs": 5}, runs=(1, 3)),
    Measure("idle", "idle", {"seconds": 4}, {"seconds": 30}, {"seconds": 0.1}, runs=(1, 1)),
    Measure(
        "urgent",
        "urgent",
        {"jobs": 60, "every_s": 0.01, "low": 250_000, "low_s": 0, "concurrency": 100},
        {"jobs": 500, "every_s": 0.01, "low": 2_000_000, "low_s": 0, "concurrency": 100},
        {"jobs": 3, "every_s": 0.001, "low": 5_000, "low_s": 0, "concurrency": 10},
        runs=(1, 3),
    ),
    Measure(
        "urgent beside work",
        "urgent",
        {"jobs": 60, "every_s": 0.02, "low": 20_000, "low_s": 0.002, "concurrency": 10},
        {"jobs": 500, "every_s": 0.02, "low": 150_000, "low_s": 0.002, "concurrency": 10},
        {"jobs": 3, "every_s": 0.001, "low": 3_000, "low_s": 0.002, "concurrency": 10},
        runs=(1, 3),
    ),
    *(
        Measure(
            reason,
            "ineligible",
            {"reason": reason, "few": 1_000, "many": 50_000, "claims": 100},
            {"reason": reason, "few": 1_000, "many": 1_000_000, "claims": 500},
            {"reason": reason, "few": 10, "many": 100, "claims": 2},
            runs=(1, 1),
        )
        for reason in ("scheduled", "limited", "breaker")
    ),
    Measure(
        "finished",
        "finished",
        {"many": 20_000, "claims": 50},
        {"many": 10_000_000, "claims": 500},
        {"many": 200, "claims": 2},
        runs=(1, 1),
    ),
    Measure(
        "fairness",
        "fairness",
        {"large": 20_000, "claims": 50},
        {"large": 1_000_000, "claims": 500},
        {"large": 50, "claims": 3},
        runs=(1, 1),
    ),
    Measure(
        "waiting",
        "waiting",
        {"jobs": 2_000, "seconds": 0.05, "at_once": 100},
        {"jobs": 2_000, "seconds": 0.05, "at_once": 100},
        {"jobs": 20, "seconds": 0.01, "at_once": 10},
    ),
    Measure(
        "wide",
        "wide",
        {"few": 100, "many": 5_000},
        {"few": 100, "many": 10_000},
        {"few": 2, "many": 10},
        runs=(1, 3),
    ),
    Measure("memory", "memory", {"jobs": 100_000}, {"jobs": 1_000_000}, {"jobs": 200}, runs=(1, 1)),
    Measure("recovery", "recovery", {"ttl_ms": 3_000}, {"ttl_ms": 15_000}, {"ttl_ms": 500}, runs=(1, 3)),
)
