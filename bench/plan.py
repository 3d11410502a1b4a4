"""Decides what is measured, at which size, and which row of the table a figure fills and what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal


@dataclass(frozen=True)
class Measure:
    """One measure of the adapters: its name there, and its options by size."""

    id: str
    name: str
    quick: Mapping[str, Any]
    full: Mapping[str, Any]
    tiny: Mapping[str, Any]  # for the test of the driver: as small as the measure allows
    runs: tuple[int, int] = (3, 5)  # quick, full
    peers: bool = False  # measured for peers too


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of a measure and its target, if it has one."""

    title: str
    measure: str
    figure: str
    unit: str
    better: Literal["more", "less"]
    target: float | None = None
    floor: float | None = None  # less than the target, and still acceptable
    times_peer: float | None = None  # the target is so many times the peer's figure in the same run
    below: str | None = None  # the target is this other figure of the measure, times `target`
    plus: float = field(default=0)  # and so much more


_LIMITS = {"claims": 200, "few": 1_000}

MEASURES: Final = (
    Measure("drain", "drain", {"jobs": 20_000}, {"jobs": 200_000}, {"jobs": 200}, peers=True),
    Measure(
        "bulk",
        "bulk",
        {"jobs": 40_000, "per_call": 5_000},
        {"jobs": 400_000, "per_call": 5_000},
        {"jobs": 200, "per_call": 100},
    ),
    Measure("single", "single", {"jobs": 2_000}, {"jobs": 20_000}, {"jobs": 20}, peers=True),
    Measure(
        "callers",
        "callers",
        {"jobs": 20_000, "callers": 50},
        {"jobs": 200_000, "callers": 50},
        {"jobs": 100, "callers": 10},
    ),
    Measure("latency", "latency", {"jobs": 100}, {"jobs": 1_000}, {"jobs": 5}, runs=(1, 3), peers=True),
    Measure("idle", "idle", {"seconds": 4}, {"seconds": 30}, {"seconds": 0.1}, runs=(1, 1)),
    Measure(
        "urgent",
        "urgent",
        {"jobs": 60, "every_s": 0.01, "low": 100_000, "low_s": 0, "concurrency": 100},
        {"jobs": 500, "every_s": 0.01, "low": 800_000, "low_s": 0, "concurrency": 100},
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
    Measure("recovery", "recovery", {"ttl_ms": 3_000}, {"ttl_ms": 15_000}, {"ttl_ms": 500}, runs=(1, 3)),
)

ROWS: Final = (
    Row("drain a backlog of no-op jobs, 1 process", "drain", "jobs_per_s", "jobs/s", "more", 50_000, floor=25_000),
    Row("the same, beside the peer", "drain", "jobs_per_s", "jobs/s", "more", times_peer=15),
    Row("CPU per 10,000 no-op jobs, worker and store", "drain", "cpu_s_per_10k", "s", "less", 0.25),
    Row("bulk enqueue", "bulk", "jobs_per_s", "jobs/s", "more", 100_000),
    Row("enqueue one by one, awaited", "single", "jobs_per_s", "jobs/s", "more", times_peer=1.2),
    Row("50 callers at once, each awaited", "callers", "jobs_per_s", "jobs/s", "more", 40_000),
    Row("idle latency, enqueue to handler, p50", "latency", "p50_ms", "ms", "less", 0.6),
    Row("idle latency, enqueue to handler, p99", "latency", "p99_ms", "ms", "less", 1.5),
    Row("idle worker, supervisor included", "idle", "percent", "% CPU", "less", 0.5),
    Row("a critical job beside a flood of no-ops, p95", "urgent", "p95_ms", "ms", "less", 5),
    Row("a critical job beside a flood of 2 ms jobs, p95", "urgent beside work", "p95_ms", "ms", "less", 4),
    Row("claim beside many scheduled jobs, by that beside 1,000", "scheduled", "ratio", "×", "less", 1.25),
    Row("claim beside many rate-limited jobs, by that beside 1,000", "limited", "ratio", "×", "less", 1.25),
    Row("claim beside many jobs behind a breaker, by that beside 1,000", "breaker", "ratio", "×", "less", 1.25),
    Row("a small tenant's job beside a large backlog is started as number", "fairness", "jobs", "", "less", 2),
    Row("2,000 jobs of 50 ms, 100 at once (ideal 1.0)", "waiting", "seconds", "s", "less", 1.03),
    Row("recovery after SIGKILL of a worker", "recovery", "seconds", "s", "less", 1, below="lease_s", plus=2),
)
