"""Procrastinate's side of the bench: `python bench/peers/with_procrastinate.py MEASURE OPTIONS`.

Best documented settings: psycopg in C with a pool, uvloop, concurrent asynchronous jobs, notifications, jobs deleted
when they succeed, table statistics up to date before a worker starts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]  # in an environment of its own

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

AT_ONCE: Final = 20
PER_CALL: Final = 5_000
CONNECTIONS: Final = 20

logging.disable()  # it says something about every job
tally = Tally()
app = App(connector=PsycopgConnector(conninfo=url(), min_size=CONNECTIONS, max_size=CONNECTIONS))


@app.task(name="noop")  # type: ignore[untyped-decorator]  # Procrastinate is not here for the checker
async def noop() -> None:
    """The cheapest job there is."""
    tally.count()


@app.task(name="nap")  # type: ignore[untyped-decorator]  # the same
async def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    await asyncio.sleep(seconds)
    tally.count()


@app.task(name="stamp")  # type: ignore[untyped-decorator]  # the same
async def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


async def drain(jobs: int, at_once: int = AT_ONCE) -> Figures:
    """A backlog of no-op jobs, one worker."""
    async with app.open_async():
        await _fill(noop, {}, jobs)
        spent_s = cpu_s(url())
        took_s = await tally.seconds(jobs, _work(at_once))
        return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


async def bulk(jobs: int, per_call: int) -> Figures:
    """Many jobs per call."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        at_s = time.perf_counter()
        for start in range(0, jobs, per_call):
            await noop.batch_defer_async(*({} for _ in range(min(per_call, jobs - start))))
        return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def single(jobs: int) -> Figures:
    """One caller."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        return await one_by_one(noop.defer_async, jobs)


async def callers(jobs: int, callers: int) -> Figures:
    """Concurrent callers."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        return await side_by_side(noop.defer_async, jobs, callers)


async def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        return await beside_a_sleeper(__file__, lambda sent_ns: stamp.defer_async(sent_ns=sent_ns), jobs)


async def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    async with app.open_async():
        await _fill(nap, {"seconds": seconds}, jobs)
        return {"seconds": await tally.seconds(jobs, _work(at_once)), "ideal_s": jobs / at_once * seconds}


async def consume() -> None:
    """The worker process of `latency`."""
    async with app.open_async():
        await _work(AT_ONCE)


async def _fill(task: Any, kwargs: dict[str, Any], jobs: int) -> None:
    await app.schema_manager.apply_schema_async()
    for start in range(0, jobs, PER_CALL):
        await task.batch_defer_async(*(kwargs for _ in range(min(PER_CALL, jobs - start))))
    await app.connector.execute_query_async("ANALYZE")


async def _work(at_once: int) -> None:
    await app.run_worker_async(concurrency=at_once, delete_jobs="successful", install_signal_handlers=False)


if __name__ == "__main__":
    main_on_uvloop(__file__, (drain, bulk, single, callers, latency, waiting, consume), ("procrastinate", "psycopg"))
