"""PgQueuer's side of the bench: `python bench/peers/with_pgqueuer.py MEASURE OPTIONS`.

Best documented settings: asyncpg, uvloop, large batches, the job table logged and its history not ("balanced"), so that
no job is lost; table statistics up to date before a worker starts (its plans need them).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from datetime import timedelta
from typing import Any, Final

os.environ.setdefault("PGQUEUER_DURABILITY", "balanced")

import asyncpg
from pgqueuer import PgQueuer  # type: ignore[import-not-found]  # installed in an environment of its own
from pgqueuer.queries import Queries  # type: ignore[import-not-found]  # the same

from bench.meter import cpu_s
from bench.peers.adapter import (
    Figures,
    Tally,
    beside_a_sleeper,
    main_on_uvloop,
    one_by_one,
    say_wait,
    side_by_side,
    url,
)

BATCH: Final = 250
PER_CALL: Final = 5_000
CONNECTIONS: Final = 10

logging.disable()  # it warns when a worker is stopped
tally = Tally()


async def drain(jobs: int, batch: int = BATCH) -> Figures:
    """A backlog of no-op jobs, one worker."""
    queries = await _installed()
    await _fill(queries, "noop", None, jobs)
    spent_s = cpu_s(url())
    took_s = await tally.seconds(jobs, _work(batch, None))
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


async def bulk(jobs: int, per_call: int) -> Figures:
    """Many jobs per call."""
    queries = await _installed()
    at_s = time.perf_counter()
    for start in range(0, jobs, per_call):
        count = min(per_call, jobs - start)
        await queries.enqueue(["noop"] * count, [None] * count, [0] * count)
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def single(jobs: int) -> Figures:
    """One caller."""
    queries = await _installed()
    return await one_by_one(lambda: queries.enqueue("noop", None), jobs)


async def callers(jobs: int, callers: int) -> Figures:
    """Concurrent callers."""
    await _installed()
    async with asyncpg.create_pool(url(), min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        queries = Queries.from_asyncpg_pool(pool)
        return await side_by_side(lambda: queries.enqueue("noop", None), jobs, callers)


async def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    queries = await _installed()
    return await beside_a_sleeper(__file__, lambda sent_ns: queries.enqueue("stamp", str(sent_ns).encode()), jobs)


async def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    queries = await _installed()
    await _fill(queries, "nap", str(seconds).encode(), jobs)
    took_s = await tally.seconds(jobs, _work(at_once // 2, at_once))
    return {"seconds": took_s, "ideal_s": jobs / at_once * seconds}


async def consume() -> None:
    """The worker process of `latency`."""
    await _work(10, None)


async def _installed() -> Any:
    queries = Queries.from_asyncpg_connection(await asyncpg.connect(url()))
    await queries.install()
    return queries


async def _fill(queries: Any, entrypoint: str, payload: bytes | None, jobs: int) -> None:
    for start in range(0, jobs, PER_CALL):
        count = min(PER_CALL, jobs - start)
        await queries.enqueue([entrypoint] * count, [payload] * count, [0] * count)
    await queries.driver.execute("VACUUM ANALYZE")


async def _work(batch: int, at_once: int | None) -> None:
    worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url()))

    @worker.entrypoint("noop")  # type: ignore[untyped-decorator]  # PgQueuer is not here for the checker
    async def noop(job: Any) -> None:
        tally.count()

    @worker.entrypoint("nap")  # type: ignore[untyped-decorator]  # the same
    async def nap(job: Any) -> None:
        await asyncio.sleep(float(job.payload))
        tally.count()

    @worker.entrypoint("stamp")  # type: ignore[untyped-decorator]  # the same
    async def stamp(job: Any) -> None:
        say_wait(int(job.payload))

    await worker.run(batch_size=batch, max_concurrent_tasks=at_once, dequeue_timeout=timedelta(seconds=30))


if __name__ == "__main__":
    main_on_uvloop(__file__, (drain, bulk, single, callers, latency, waiting, consume), ("pgqueuer", "asyncpg"))
