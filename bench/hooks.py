"""Measures what hooks cost: `python -m bench.hooks [--engine redis] [--rounds 5]`.

A worker drains jobs that do nothing and succeed, which is the worst case: such jobs end many at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from typing import Final, get_args

from bench.ground import scratch
from bench.targets import Engine
from bench.turns import GROUNDS
from limpet import JobRecord, Limpet

JOBS: Final = 5_000
# What is published, and whether the same worker runs it.
CASES: Final = {
    "no hook": (None, True),
    "on_dead": ("dead", True),
    "on_finished(succeeded), run by other workers": ("succeeded", False),
    "the same, run by this worker": ("succeeded", True),
}


async def drained_s(url: str, hook: str | None, runs: bool) -> float:
    """Seconds from the start of a worker until it has nothing left to do."""
    app = Limpet(url)

    @app.task(name="nothing")
    async def nothing() -> None: ...

    if hook is not None:

        @app.on_finished(states=[hook])
        async def ended(job: JobRecord) -> None: ...

    async with app:
        await app.enqueue_many(nothing.job() for _ in range(JOBS))
        at_s = time.perf_counter()
        await app.work(until_empty=True, hooks=runs)
        return time.perf_counter() - at_s


def main() -> None:
    """Print, for each engine and case, the time by that without a hook: the median of all rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description=__doc__)
    parser.add_argument("--engine", choices=get_args(Engine), action="append", help="every engine unless said")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    for engine in asked.engine or get_args(Engine):
        took: dict[str, list[float]] = {case: [] for case in CASES}
        for _ in range(asked.rounds):
            for case, (hook, runs) in CASES.items():
                with scratch() as folder, GROUNDS[engine](folder) as url:
                    took[case].append(asyncio.run(drained_s(url.format(n=0), hook, runs)))
        usual = median(took["no hook"])
        for case, times in took.items():
            print(f"{engine}, {case}: {median(times) / usual:.2f} ({JOBS / median(times):,.0f} jobs/s)", flush=True)


if __name__ == "__main__":
    main()
