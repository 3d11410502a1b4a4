"""The driver of the bench works: every adapter's figures end in the table. Sizes are tiny and no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.plan import MEASURES, ROWS
from tests.arch.tree import ROOT


def test_the_bench_prints_a_table_and_writes_its_figures(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--size", "tiny", "--only", "drain,latency,scheduled", "--json", str(written)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + sum(row.measure in {"drain", "latency", "scheduled"} for row in ROWS)
    figures = json.loads(written.read_text())["figures"]
    assert figures["drain"]["sync=normal"].keys() == {"jobs_per_s", "cpu_s_per_10k"}
    assert figures["latency"]["sync=full"].keys() == {"p50_ms", "p95_ms", "p99_ms"}


def test_every_row_names_a_measure() -> None:
    assert {row.measure for row in ROWS} == {measure.id for measure in MEASURES}
