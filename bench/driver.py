"""Runs measures, each in a fresh process, the systems taking turns, and keeps the median of every figure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from bench.plan import MEASURES, Measure

Size = Literal["tiny", "quick", "full"]
Figures = Mapping[str, float]

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 1_800


@dataclass(frozen=True)
class System:
    """Something that can be measured: a command that takes a measure and its options and prints its figures."""

    name: str
    command: tuple[str, ...]
    measures: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    peer: bool = False

    def run(self, measure: str, options: Mapping[str, Any]) -> Figures:
        """One run in a process of its own."""
        done = subprocess.run(
            [*self.command, measure, json.dumps({**self.options, **options})],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def systems() -> list[System]:
    """Ours in both settings, and the peers that `make bench-peers` has installed."""
    ours = (sys.executable, "-m", "bench.ours")
    found = [
        System("sync=normal", ours, frozenset(measure.name for measure in MEASURES), {"sync": "normal"}),
        System("sync=full", ours, frozenset({"drain", "bulk", "single", "callers", "latency"}), {"sync": "full"}),
    ]
    huey = ROOT / ".bench" / "huey" / "bin" / "python"
    if huey.exists():
        command = (str(huey), str(ROOT / "bench" / "peer_huey.py"))
        found.append(System("huey", command, frozenset({"drain", "single", "latency"}), peer=True))
    return found


def measured(
    measures: Iterable[Measure], systems: Iterable[System], size: Size, said: Callable[[str], None]
) -> dict[str, dict[str, Figures]]:
    """Measure id → system → median of each figure."""
    results: dict[str, dict[str, Figures]] = {}
    for measure in measures:
        able = [each for each in systems if measure.name in each.measures and (measure.peers or not each.peer)]
        options = {"tiny": measure.tiny, "quick": measure.quick, "full": measure.full}[size]
        runs: dict[str, list[Figures]] = {each.name: [] for each in able}
        for _ in range({"tiny": 1, "quick": measure.runs[0], "full": measure.runs[1]}[size]):
            for system in able:
                said(f"{measure.id}: {system.name}")
                runs[system.name].append(system.run(measure.name, options))
        results[measure.id] = {name: _medians(each) for name, each in runs.items()}
    return results


def _medians(runs: list[Figures]) -> Figures:
    return {figure: median(run[figure] for run in runs) for figure in runs[0]}
