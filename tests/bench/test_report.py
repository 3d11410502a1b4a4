"""The table says what was reached: beside a number, and beside the best of the peers in the same run."""

from __future__ import annotations

import pytest

from bench.driver import Figures, System
from bench.ground import sqlite
from bench.report import table

OURS, BULLMQ, HUEY, TASKIQ = (
    System(name, (), frozenset(), sqlite(), peer=peer)
    for name, peer in (("ours", False), ("bullmq", True), ("huey", True), ("taskiq", True))
)


def drained(jobs_per_s: float) -> Figures:
    return {"jobs_per_s": jobs_per_s, "cpu_s_per_10k": 0.2}


def cells(text: str, row: int) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[2 + row].strip("|").split("|")]


@pytest.mark.parametrize(
    ("ours", "verdict"), [(5_000, "met (5×)"), (3_000, "floor met (3×)"), (2_990, "missed (2.99×)")]
)
def test_a_ratio_is_of_figures_of_one_run(ours: float, verdict: str) -> None:
    text = table("redis", {"drain": {"ours": drained(ours), "bullmq": drained(1_000)}}, [OURS, BULLMQ])
    assert cells(text, 0)[1:] == [f"{ours:,.0f} jobs/s", "1,000 jobs/s", "≥ 5× bullmq (floor 3×)", verdict]


def test_the_best_of_the_peers_is_compared_with() -> None:
    results = {"drain": {"ours": drained(2_500), "huey": drained(90), "taskiq": drained(100)}}
    assert cells(table("redis", results, [OURS, HUEY, TASKIQ]), 1)[-2:] == ["≥ 25× taskiq (floor 15×)", "met (25×)"]


def test_without_peers_there_is_no_verdict_on_a_ratio() -> None:
    text = table("redis", {"drain": {"ours": drained(9e9)}}, [OURS])
    assert [cells(text, row)[-1] for row in range(3)] == ["not measured", "not measured", "met"]


def test_peers_alone_get_figures_and_no_verdict() -> None:
    text = table("redis", {"drain": {"huey": drained(90)}}, [HUEY])
    assert [cells(text, row)[-1] for row in range(3)] == ["not measured"] * 3


def test_a_target_may_depend_on_another_figure() -> None:
    results = {"recovery": {"ours": {"seconds": 4.5, "lease_s": 3.0}}}
    assert cells(table("redis", results, [OURS]), 0)[-2:] == ["≤ 5 s", "met"]
