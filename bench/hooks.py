"""Measures what hooks cost: `python -m bench.hooks [--engine redis] [--rounds 5]`.

A worker drains jobs that do nothing and succeed, which is the worst case: such jobs end many at a time. What counts is
processor time, of the worker and of the store's server, since that hardly depends on what else the machine does.
`jobs/s` is by the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, get_args

from bench.ground import scratch
from bench.meter import cpu_s
from bench.targets import Engine
from bench.turns import GROUNDS
from limpet import JobRecord, Limpet

JOBS: Final = 5_000
# What is published, and whether the same worker runs it.
CASES: Final[Mapping[str, tuple[str | None, bool]]] = {
    "no hook": (None, True),
    "on_dead": ("dead", True),
    "on_finished(succeeded), run by other workers": ("succeeded", False),
    "the same, run by this worker": ("succeeded", True),
}


class Cost(NamedTuple):
    """What it took until a worker had nothing left to do."""

    cpu_s: float
    took_s: float


async def drained(url: str, hook: str | None, runs: bool) -> Cost:
    """Drain one store."""
    app = Limpet(url)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    if hook is not None:

        @app.on_finished(states=[hook])
        async def ended(job: JobRecord) -> None: ...

    async with app:
        await app.enqueue_many(nothing.job() for _ in range(JOBS))
        used_s, at_s = cpu_s(url), time.perf_counter()
        await app.work(until_empty=True, hooks=runs)
        return Cost(cpu_s(url) - used_s, time.perf_counter() - at_s)


def measured(engine: Engine, hook: str | None, runs: bool) -> Cost:
    """One run, in a store of its own."""
    with scratch() as folder, GROUNDS[engine](folder) as url:
        os.environ["LIMPET_BENCH_FOLDER"] = str(Path(folder))
        return asyncio.run(drained(url.format(n=0), hook, runs))


def main() -> None:
    """Print, for each engine and case, the cost by that without a hook in the same round: the median of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__)
    parser.add_argument("--engine", choices=get_args(Engine), action="append", help="every engine unless said")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    for engine in asked.engine or get_args(Engine):
        rounds = [{case: measured(engine, *how) for case, how in CASES.items()} for _ in range(asked.rounds)]
        for case in CASES:
            by_usual = median(costs[case].cpu_s / costs["no hook"].cpu_s for costs in rounds)
            each_us = median(costs[case].cpu_s for costs in rounds) / JOBS * 1_000_000
            per_s = JOBS / median(costs[case].took_s for costs in rounds)
            print(f"{engine}, {case}: {by_usual:.2f} ({each_us:.0f} µs each, {per_s:,.0f} jobs/s)", flush=True)


if __name__ == "__main__":
    main()
