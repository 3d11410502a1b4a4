"""Measures what counting costs: `python -m bench.metrics [../before/src] [--engine sqlite] [--rounds 5]`.

A supervised worker drains jobs that do nothing: with what is always counted, with metrics exposed, with spans, with
both; and with the package of another checkout, if one is named. What counts is the processor time of everything that
was started, in turns; the store's server is left out. The time of a run of no jobs is taken off.
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
from typing import Final, NamedTuple, get_args

from bench.driver import ROOT, TIMEOUT_S
from bench.ground import scratch
from bench.targets import Engine
from bench.turns import GROUNDS, HERE

PROGRAM: Final = ROOT / "bench" / "ours" / "counted.py"
JOBS: Final = 40_000
USUAL: Final = "rollups, as always"


class Case(NamedTuple):
    """What is switched on, of which checkout."""

    source: Path = HERE
    metrics: bool = False
    traced: bool = False


def cpu_s(engine: Engine, case: Case, jobs: int) -> float:
    """One run, in processes and a store of its own."""
    with scratch() as folder, GROUNDS[engine](folder) as url:
        place = url.format(n=0)
        env = {**os.environ, "PYTHONPATH": str(case.source), "COUNTED_URL": place}
        if case.traced:
            env["TRACED"] = "1"
        asked = {"url": place, "jobs": jobs, "metrics": case.metrics}
        done = subprocess.run(
            [sys.executable, str(PROGRAM), json.dumps(asked)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    figure: float = json.loads(done.stdout)["cpu_s"]
    return figure


def main() -> None:
    """Print, for each engine and case, the cost by the usual one of the same round: the median of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description=__doc__)
    parser.add_argument("before", type=Path, nargs="?", help="the src folder of another checkout")
    parser.add_argument("--engine", choices=get_args(Engine), action="append", help="SQLite unless said")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=JOBS)
    asked = parser.parse_args()
    cases: Mapping[str, Case] = {
        **({"the other checkout": Case(asked.before.resolve())} if asked.before else {}),
        USUAL: Case(),
        "metrics": Case(metrics=True),
        "spans": Case(traced=True),
        "metrics and spans": Case(metrics=True, traced=True),
    }
    engines: tuple[Engine, ...] = tuple(asked.engine or ("sqlite",))
    for engine in engines:
        rounds = []
        for _ in range(asked.rounds):
            empty = {name: cpu_s(engine, case, 0) for name, case in cases.items()}
            rounds.append({name: cpu_s(engine, case, asked.jobs) - empty[name] for name, case in cases.items()})
        for name in cases:
            ratio = median(each[name] / each[USUAL] for each in rounds)
            each_us = median(each[name] for each in rounds) / asked.jobs * 1_000_000
            print(f"{engine}, {name}: {ratio:.3f} ({each_us:.1f} µs each)", flush=True)


if __name__ == "__main__":
    main()
