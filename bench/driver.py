"""Runs measures, each in a fresh process on fresh ground, the systems taking turns, and keeps medians."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

from bench.ground import Ground, scratch
from bench.plan import Measure

Size = Literal["tiny", "quick", "full"]
Figures = Mapping[str, float]

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 1_800
SCALED: Final = frozenset({"drain", "memory"})  # figures per job, of a backlog that slow systems may have smaller


@dataclass(frozen=True)
class System:
    """Something that can be measured: a command that takes a measure and its options and prints its figures."""

    name: str
    command: tuple[str, ...]
    measures: frozenset[str]
    ground: Ground
    peer: bool = False
    scale: float = 1

    def run(self, measure: str, options: Mapping[str, Any]) -> Figures:
        """One run in a process of its own."""
        asked = dict(options)
        if measure in SCALED:
            asked["jobs"] = round(asked["jobs"] * self.scale)
        with scratch() as folder, self.ground(folder) as url:
            done = subprocess.run(
                [*self.command, measure, json.dumps({**asked, "url": url})],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "LIMPET_BENCH_FOLDER": str(folder)},
                stdout=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT_S,
                check=True,
            )
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures


def measured(
    measures: Iterable[Measure], systems: Sequence[System], size: Size, said: Callable[[str], None]
) -> dict[str, dict[str, Figures]]:
    """Measure id → system → median of each figure."""
    results: dict[str, dict[str, Figures]] = {}
    for measure in measures:
        able = [each for each in systems if measure.name in each.measures]
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
