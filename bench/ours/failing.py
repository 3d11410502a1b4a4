"""Drains a backlog of which a tenth fails, behind a breaker; it asks only for what every version of the package has.

`python bench/ours/failing.py '{"url": "redis://127.0.0.1:6379/0", "jobs": 20000, "ms": 0, "concurrency": 100}'`
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from limpet import Breaker, Limpet

CHUNK = 5_000  # jobs per call when the backlog is laid out
ONE_IN = 10  # jobs fail, evenly, so that the breaker never opens


async def failing(url: str, jobs: int, ms: int, concurrency: int) -> float:
    """Jobs per second, from the start of a worker until every job has ended."""
    app = Limpet(url)

    @app.task(name="flaky", retry=1, breaker=Breaker(failures=5, name="provider"))
    async def flaky(number: int) -> None:
        if ms:
            await asyncio.sleep(ms / 1000)
        if number % ONE_IN == 0:
            raise RuntimeError("as one in ten does")

    async with app:
        for start in range(0, jobs, CHUNK):
            await app.enqueue_many(flaky.job(number) for number in range(start, min(start + CHUNK, jobs)))
        at_s = time.perf_counter()
        report = await app.work(concurrency=concurrency, until_empty=True)
        took_s = time.perf_counter() - at_s
    assert report.succeeded == jobs - jobs // ONE_IN, f"{report.succeeded} of {jobs} jobs succeeded"
    return jobs / took_s


if __name__ == "__main__":
    logging.getLogger("limpet").addHandler(logging.NullHandler())  # a line for each dead job is not what is measured
    print(json.dumps({"jobs_per_s": asyncio.run(failing(**json.loads(sys.argv[1])))}))
