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
from bench.versions import Versions

Size = Literal["tiny", "quick", "full"]
Role = Literal["ours", "floor", "peer"]
Figures = Mapping[str, float]

ROOT: Final = Path(__file__).resolve().parent.parent
PATH: Final = os.pathsep.join((str(ROOT / "src"), str(ROOT)))  # of this checkout, whichever environment runs it
TIMEOUT_S: Final = 1_800
SCALED: Final = frozenset({"drain", "memory"})  # figures per job, of a backlog that slow systems may have smaller


@dataclass(frozen=True)
class System:
    """Something that can be measured: a command that takes a measure and its options and prints its figures."""

    name: str
    command: tuple[str, ...]
    measures: frozenset[str]
    ground: Ground
    role: Role = "ours"
    scale: float = 1

    def run(self, measure: str, options: Mapping[str, Any]) -> Figures:
        """One run in a process of its own."""
        asked = dict(options)
        if measure in SCALED:
            asked["jobs"] = round(asked["jobs"] * self.scale)
        with scratch() as folder, self.ground(folder) as url:
            figures: Figures = self._said(measure, {**asked, "url": url}, LIMPET_BENCH_FOLDER=str(folder))
        return figures

    def versions(self, engine: str) -> Versions:
        """The releases that it is made of."""
        releases: Versions = self._said("versions", {"engine": engine})
        return releases

    def _said(self, name: str, options: Mapping[str, Any], **environment: str) -> Any:
        done = subprocess.run(
            [*self.command, name, json.dumps(options)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATH, **environment},
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return json.loads(done.stdout.splitlines()[-1])


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
