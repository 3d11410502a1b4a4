"""Measures this checkout and another one in turns: `python -m bench.turns ../before/src [--engine redis] [--rounds 3]`.

What is measured is a backlog of which a tenth fails: such jobs must not become slower by what guards the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final, get_args

from bench import ground
from bench.driver import ROOT, TIMEOUT_S
from bench.ground import Ground, scratch
from bench.targets import Engine

HERE: Final = ROOT / "src"
PROGRAM: Final = ROOT / "bench" / "ours" / "failing.py"
GROUNDS: Final[Mapping[Engine, Ground]] = {
    "sqlite": ground.sqlite("?sync=normal"),
    "redis": ground.redis("everysec"),
    "postgres": ground.postgres("postgres-16"),
}
# Jobs, the milliseconds that each takes, and how many run at once.
SIZES: Final = ((2_000, 0, 1), (10_000, 0, 10), (20_000, 0, 100), (10_000, 2, 100))


def jobs_per_s(source: Path, engine: Engine, size: tuple[int, int, int]) -> float:
    """One run of the package in `source`, in a process and a store of its own."""
    jobs, ms, concurrency = size
    with scratch() as folder, GROUNDS[engine](folder) as url:
        asked = {"url": url.format(n=0), "jobs": jobs, "ms": ms, "concurrency": concurrency}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    figure: float = json.loads(done.stdout)["jobs_per_s"]
    return figure


def main() -> None:
    """Print a line for each engine and size: this checkout by the other, the median of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("before", type=Path, help="the src folder of the other checkout")
    parser.add_argument("--engine", choices=get_args(Engine), action="append", help="every engine unless said")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    for engine in asked.engine or get_args(Engine):
        for size in SIZES:
            runs: dict[Path, list[float]] = {asked.before.resolve(): [], HERE: []}
            for _ in range(asked.rounds):
                for source, figures in runs.items():
                    figures.append(jobs_per_s(source, engine, size))
            rounds = list(zip(*runs.values(), strict=True))
            ratio = median(now / before for before, now in rounds)  # of a round: what else runs here changes with time
            each = ", ".join(f"{before:,.0f} → {now:,.0f}" for before, now in rounds)
            jobs, ms, concurrency = size
            what = f"{engine}, {jobs:,} jobs of {ms} ms, {concurrency} at once"
            print(f"{what}: {ratio:.2f} ({each} jobs/s)", flush=True)


if __name__ == "__main__":
    main()
