"""The driver of the bench works: every adapter's figures end in the table. Sizes are tiny and no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from bench.plan import MEASURES
from bench.targets import FLOOR, ROWS, Engine, rows
from tests.arch.tree import ROOT
from tests.size import in_matrix

SETTINGS = {
    "sqlite": ("sync=normal", "sync=full"),
    "redis": ("fsync=everysec", "fsync=always"),
    "postgres": ("postgres-16", "postgres-18"),
}


@pytest.mark.timeout(600)  # 10 s on a machine that has nothing else to do
@pytest.mark.parametrize("engine", ["sqlite", *in_matrix("the same program on a server", "redis", "postgres")])
def test_the_bench_prints_a_table_and_writes_its_figures(engine: Engine, tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    only = {"drain", "steady", "single", "latency", "scheduled", "memory"}
    done = subprocess.run(
        [sys.executable, *f"-m bench --engine {engine} --size tiny --only {','.join(only)} --json {written}".split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + sum(row.measure in only for row in rows(engine))
    kept = json.loads(written.read_text())
    figures = kept["figures"]
    first, second = SETTINGS[engine]
    assert figures["drain"][first].keys() == {"jobs_per_s", "cpu_s_per_10k"}
    assert figures["latency"][second].keys() == {"p50_ms", "p95_ms", "p99_ms"}
    assert figures["latency"][FLOOR].keys() == figures["latency"][second].keys()
    assert figures["single"][FLOOR].keys() == figures["single"][first].keys() == {"jobs_per_s", "each_us"}
    assert kept["versions"].keys() == {first, second, FLOOR}
    assert f"{first}: limpet {kept['versions'][first]['limpet']}" in done.stdout


def test_every_row_names_a_measure() -> None:
    assert {row.measure for row in ROWS} == {measure.id for measure in MEASURES}


@pytest.mark.parametrize("engine", get_args(Engine))
def test_every_engine_has_rows(engine: Engine) -> None:
    assert {"drain", "latency", "recovery"} <= {row.measure for row in rows(engine)}
