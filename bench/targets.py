"""Decides which figure fills which row of the table, and what it should be on each engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

Engine = Literal["sqlite", "redis", "postgres"]

FLOOR: Final = "floor"  # the column of what the mechanism beneath takes alone


@dataclass(frozen=True)
class Target:
    """What a figure should be: a number, or a multiple of the best of some systems in the same run."""

    value: float
    enough: float | None = None  # not the value, and still acceptable
    beside: tuple[str, ...] = ()  # the value is a multiple of the best of these
    below: str | None = None  # the value is a multiple of this other figure of the measure
    plus: float = 0  # and so much more
    either: Target | None = None  # to reach this one is as good


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure of a measure, on the engines that have a target for it."""

    title: str
    measure: str
    figure: str
    unit: str
    better: Literal["more", "less"]
    targets: Mapping[Engine, Target]


def _all(value: float) -> Mapping[Engine, Target]:
    return dict.fromkeys(get_args(Engine), Target(value))


def _beside_floor(goal: float, enough: float) -> Target:
    return Target(goal, enough=enough, beside=(FLOOR,))


_PYTHON: Final = ("huey", "taskiq", "arq", "dramatiq", "celery", "rq")
_ALL: Final = ("sidekiq", "bullmq", *_PYTHON)
_POSTGRES: Final = ("pgqueuer", "procrastinate")
_LEASE: Final = Target(1, below="lease_s", plus=2)
_P99: Final = Target(3, below="p50_ms", either=Target(1.5, beside=(FLOOR,)))

ROWS: Final = (
    Row(
        "drain a backlog of no-op jobs, 1 process",
        "drain",
        "jobs_per_s",
        "jobs/s",
        "more",
        {
            "sqlite": Target(50_000, enough=25_000),
            "redis": Target(5, enough=3, beside=("bullmq",)),
            "postgres": Target(3, enough=1.5, beside=("pgqueuer",)),
        },
    ),
    Row(
        "the same, beside the fastest Python peer",
        "drain",
        "jobs_per_s",
        "jobs/s",
        "more",
        {"sqlite": Target(15, beside=("huey",)), "redis": Target(25, enough=15, beside=_PYTHON)},
    ),
    Row("CPU per 10,000 no-op jobs, worker and store", "drain", "cpu_s_per_10k", "s", "less", _all(0.25)),
    Row(
        "the same, while finished jobs beyond those kept are erased",
        "steady",
        "cpu_s_per_10k",
        "s",
        "less",
        {"redis": Target(0.25)},
    ),
    Row(
        "bulk enqueue",
        "bulk",
        "jobs_per_s",
        "jobs/s",
        "more",
        {
            "sqlite": Target(100_000),
            "redis": Target(1.2, enough=0.9, beside=("sidekiq",)),
            "postgres": Target(1.5, enough=1.3, beside=("pgqueuer",)),
        },
    ),
    Row(
        "enqueue one by one, awaited",
        "single",
        "jobs_per_s",
        "jobs/s",
        "more",
        {
            "sqlite": Target(1.2, beside=("huey",)),
            "redis": Target(1.2, beside=_ALL),
            "postgres": Target(1, beside=_POSTGRES),
        },
    ),
    Row(
        "the same, the time of each",
        "single",
        "each_us",
        "µs",
        "less",
        {"postgres": Target(1.4, beside=(FLOOR,))},
    ),
    Row("50 callers at once, each awaited", "callers", "jobs_per_s", "jobs/s", "more", _all(40_000)),
    Row(
        "idle latency, enqueue to handler, p50",
        "latency",
        "p50_ms",
        "ms",
        "less",
        {"sqlite": _beside_floor(2.4, 2.8), "redis": _beside_floor(2, 2.2), "postgres": _beside_floor(1.4, 1.5)},
    ),
    Row(
        "the same, beside the fastest peer",
        "latency",
        "p50_ms",
        "ms",
        "less",
        {
            "sqlite": Target(1, beside=("huey",)),
            "redis": Target(1, beside=_ALL),
            "postgres": Target(1, beside=_POSTGRES),
        },
    ),
    Row(
        "idle latency, enqueue to handler, p99",
        "latency",
        "p99_ms",
        "ms",
        "less",
        dict.fromkeys(get_args(Engine), _P99),
    ),
    Row("idle worker, supervisor included", "idle", "percent", "% CPU", "less", _all(0.4)),
    Row(
        "a critical job beside a flood of no-ops, p95",
        "urgent",
        "p95_ms",
        "ms",
        "less",
        {"sqlite": Target(7), "redis": Target(5), "postgres": Target(7)},
    ),
    Row("a critical job beside a flood of 2 ms jobs, p95", "urgent beside work", "p95_ms", "ms", "less", _all(4)),
    Row("claim beside many scheduled jobs, by that beside 1,000", "scheduled", "ratio", "×", "less", _all(1.25)),
    Row("claim beside many rate-limited jobs, by that beside 1,000", "limited", "ratio", "×", "less", _all(1.25)),
    Row("claim beside many jobs behind a breaker, by that beside 1,000", "breaker", "ratio", "×", "less", _all(1.25)),
    Row(
        "claim beside many finished jobs, by that beside none",
        "finished",
        "ratio",
        "×",
        "less",
        {"sqlite": Target(1.25), "postgres": Target(1.25)},
    ),
    Row(
        "a page of jobs beside many finished ones, the slowest of several questions",
        "finished",
        "page_ms",
        "ms",
        "less",
        {"sqlite": Target(100), "postgres": Target(100)},
    ),
    Row("a small tenant's job beside a large backlog is started as number", "fairness", "jobs", "", "less", _all(2)),
    Row("2,000 jobs of 50 ms, 100 at once (ideal 1.0)", "waiting", "seconds", "s", "less", _all(1.03)),
    Row("time per child of a chord of thousands, by that in chords of 100", "wide", "ratio", "×", "less", _all(1.25)),
    Row(
        "memory per waiting job, 100 bytes of payload",
        "memory",
        "bytes_per_job",
        "bytes",
        "less",
        {"redis": Target(300)},
    ),
    Row(
        "recovery after SIGKILL of a worker",
        "recovery",
        "seconds",
        "s",
        "less",
        dict.fromkeys(get_args(Engine), _LEASE),
    ),
)


def rows(engine: Engine) -> list[Row]:
    """The rows of one engine's table."""
    return [row for row in ROWS if engine in row.targets]
