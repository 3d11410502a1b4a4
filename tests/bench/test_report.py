"""The table says what was reached: beside a number, the floor, and the best of the peers in the same run."""

from __future__ import annotations

import pytest

from bench.driver import Figures, Role, System
from bench.ground import sqlite
from bench.report import releases, table
from bench.targets import FLOOR


def system(name: str, role: Role = "peer") -> System:
    return System(name, (), frozenset(), sqlite(), role)


OURS, BENEATH = system("ours", "ours"), system(FLOOR, "floor")
BULLMQ, HUEY, TASKIQ = system("bullmq"), system("huey"), system("taskiq")


def drained(jobs_per_s: float) -> Figures:
    return {"jobs_per_s": jobs_per_s, "cpu_s_per_10k": 0.2}


def cells(text: str, row: int) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[2 + row].strip("|").split("|")]


@pytest.mark.parametrize(("ours", "verdict"), [(5_000, "met (5×)"), (3_000, "enough (3×)"), (2_990, "missed (2.99×)")])
def test_a_ratio_is_of_figures_of_one_run(ours: float, verdict: str) -> None:
    text = table("redis", {"drain": {"ours": drained(ours), "bullmq": drained(1_000)}}, [OURS, BULLMQ])
    assert cells(text, 0)[1:] == [f"{ours:,.0f} jobs/s", "1,000 jobs/s", "≥ 5× bullmq (enough: 3×)", verdict]


def test_the_best_of_the_peers_is_compared_with() -> None:
    results = {"drain": {"ours": drained(2_500), "huey": drained(90), "taskiq": drained(100)}}
    assert cells(table("redis", results, [OURS, HUEY, TASKIQ]), 1)[-2:] == ["≥ 25× taskiq (enough: 15×)", "met (25×)"]


def test_without_peers_there_is_no_verdict_on_a_ratio() -> None:
    text = table("redis", {"drain": {"ours": drained(9e9)}}, [OURS])
    assert [cells(text, row)[-1] for row in range(3)] == ["not measured", "not measured", "met"]


def test_peers_alone_get_figures_and_no_verdict() -> None:
    text = table("redis", {"drain": {"huey": drained(90)}}, [HUEY])
    assert [cells(text, row)[-1] for row in range(3)] == ["not measured"] * 3


def test_a_target_may_depend_on_another_figure() -> None:
    results = {"recovery": {"ours": {"seconds": 4.5, "lease_s": 3.0}}}
    assert cells(table("redis", results, [OURS]), 0)[-2:] == ["≤ 5 s", "met"]


def waited(p50_ms: float, p99_ms: float) -> Figures:
    return {"p50_ms": p50_ms, "p95_ms": p99_ms, "p99_ms": p99_ms}


@pytest.mark.parametrize(("p50_ms", "verdict"), [(1.0, "met (2×)"), (1.1, "enough (2.2×)"), (1.11, "missed (2.22×)")])
def test_idle_latency_is_a_multiple_of_the_floor(p50_ms: float, verdict: str) -> None:
    results = {"latency": {"ours": waited(p50_ms, 9), FLOOR: waited(0.5, 1)}}
    found = cells(table("redis", results, [OURS, BENEATH]), 0)
    assert found[1:] == [f"{p50_ms:g} ms", "0.5 ms", "≤ 2× floor (enough: 2.2×)", verdict]


@pytest.mark.parametrize(
    ("p99_ms", "floor_ms", "verdict"),
    [
        pytest.param(3, 1, "met", id="three times the median"),
        pytest.param(6, 4, "met (1.5×)", id="the machine's own unlucky ones are no better"),
        pytest.param(6.1, 4, "missed", id="neither"),
    ],
)
def test_the_unlucky_ones_may_be_those_of_the_median_or_of_the_floor(
    p99_ms: float, floor_ms: float, verdict: str
) -> None:
    results = {"latency": {"ours": waited(1, p99_ms), FLOOR: waited(0.5, floor_ms)}}
    found = cells(table("redis", results, [OURS, BENEATH]), 2)
    assert found[-2:] == ["≤ 3 ms or ≤ 1.5× floor", verdict]


def test_what_was_missed_without_the_floor_is_not_judged() -> None:
    text = table("redis", {"latency": {"ours": waited(1, 9)}}, [OURS])
    assert [cells(text, row)[-1] for row in range(3)] == ["not measured"] * 3


def test_the_floor_alone_gets_figures_and_no_verdict() -> None:
    found = cells(table("redis", {"latency": {FLOOR: waited(0.5, 1)}}, [BENEATH]), 0)
    assert found[1:] == ["0.5 ms", "≤ 2× floor (enough: 2.2×)", "not measured"]


def test_the_time_of_an_enqueue_is_a_multiple_of_a_bare_commit() -> None:
    results = {"single": {"ours": {"jobs_per_s": 2_500, "each_us": 400}, FLOOR: {"jobs_per_s": 3_333, "each_us": 300}}}
    assert cells(table("postgres", results, [OURS, BENEATH]), 1)[1:] == [
        "400 µs",
        "300 µs",
        "≤ 1.4× floor",
        "met (1.33×)",
    ]


def test_a_line_says_what_each_column_is_made_of() -> None:
    versions = {"ours": {"limpet": "0.3.0", "hiredis": "3.5.0"}, "huey": {"huey": "3.5.4"}}
    assert releases(versions) == "ours: limpet 0.3.0, hiredis 3.5.0; huey: huey 3.5.4"
