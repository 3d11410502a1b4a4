"""An app whose worker is measured: jobs that do nothing. `TRACED=1` makes spans of them, which no exporter takes.

`python bench/ours/counted.py '{"url": "sqlite:////tmp/x.db", "jobs": 20000, "metrics": true}'` drains it with a
supervised worker of one process and prints the processor time of all of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from pathlib import Path

from limpet import Limpet

CHUNK = 5_000
app = Limpet(os.environ.get("COUNTED_URL", "sqlite://"))

if os.environ.get("TRACED"):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    from limpet.integrations.otel import instrument

    trace.set_tracer_provider(TracerProvider())
    instrument(app)


@app.task(name="nothing")
async def nothing() -> None: ...


async def drained(url: str, jobs: int, metrics: bool) -> None:
    """Fill the store, and work until it is empty."""
    from limpet.runtime.log_setup import LogSettings
    from limpet.runtime.supervisor import Supervisor, SupervisorSettings

    async with app:
        for start in range(0, jobs, CHUNK):
            await app.enqueue_many(nothing.job() for _ in range(min(CHUNK, jobs - start)))
        log = LogSettings(level="WARNING")
        here = (str(Path(__file__).parent),)
        supervisor = Supervisor(SupervisorSettings(app_ref="counted:app", path=here, url=url, log=log))
        if metrics:
            from limpet.runtime.metrics_book import MetricsBook

            supervisor.book = MetricsBook()
        running = asyncio.create_task(supervisor.run())
        while (await app.store.count()).succeeded < jobs:  # noqa: ASYNC110  # another process drains it
            await asyncio.sleep(0.2)
        supervisor.stop()
        await running


def cpu_s() -> float:
    """Of this process and of those that it started and that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    asyncio.run(drained(asked["url"], asked["jobs"], asked["metrics"]))
    print(json.dumps({"cpu_s": cpu_s()}))
