"""Drains a backlog of which a tenth fails, behind a breaker; it asks only for what every version of the package has.

`python bench/ours/failing.py '{"url": "redis://127.0.0.1:6379/0", "jobs": 20000, "ms": 0, "concurrency": 100}'`
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time

from limpet import Breaker, Limpet

CHUNK = 5_000  # jobs per call when the backlog is laid out
PERCENT = 10  # of the jobs fail, the same in every run, and never enough in a row to open the breaker
SEED = 1


async def drained(url: str, jobs: int, ms: int, concurrency: int) -> float:
    """Jobs per second, from the start of a worker until every job has ended."""
    app = Limpet(url)
    failing = frozenset(random.Random(SEED).sample(range(jobs), jobs * PERCENT // 100))

    @app.task(name="flaky", retry=1, breaker=Breaker(failures=10, name="provider"))
    async def flaky(number: int) -> None:
        if ms:
            await asyncio.sleep(ms / 1000)
        if number in failing:
            raise RuntimeError("as one in ten does")

    async with app:
        for start in range(0, jobs, CHUNK):
            await app.enqueue_many(flaky.job(number) for number in range(start, min(start + CHUNK, jobs)))
        at_s = time.perf_counter()
        report = await app.work(concurrency=concurrency, until_empty=True)
        took_s = time.perf_counter() - at_s
    assert report.succeeded == jobs - len(failing), f"{report.succeeded} of {jobs} jobs succeeded"
    return jobs / took_s


if __name__ == "__main__":
    logging.getLogger("limpet").addHandler(logging.NullHandler())  # a line for each dead job is not what is measured
    print(json.dumps({"jobs_per_s": asyncio.run(drained(**json.loads(sys.argv[1])))}))
