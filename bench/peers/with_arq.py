"""arq's side of the bench: `python bench/peers/with_arq.py MEASURE OPTIONS`.

Best documented settings: uvloop, hiredis, many jobs at once, results not kept and not logged, and a short time between
two looks, since its worker polls (twice a second by default). It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from arq import create_pool, func  # type: ignore[import-not-found]  # installed in an environment of its own
from arq.connections import RedisSettings  # type: ignore[import-not-found]  # the same
from arq.worker import Worker  # type: ignore[import-not-found]  # the same

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import (
    CALM_S,
    PAYLOAD,
    Figures,
    Tally,
    beside_a_sleeper,
    main_on_uvloop,
    one_by_one,
    say_wait,
    side_by_side,
    url,
)

AT_ONCE: Final = 100
POLL_S: Final = 0.01  # the longest pause of huey and Dramatiq here
CHUNK: Final = 100  # each call has a connection of its own

logging.disable()  # it says something about every job, and warns when it is stopped
settings = RedisSettings.from_dsn(url())
tally = Tally()


async def noop(context: dict[str, Any], payload: str = "") -> None:
    """The cheapest job there is."""
    tally.count()


async def nap(context: dict[str, Any], seconds: float) -> None:
    """A job that waits for something outside."""
    await asyncio.sleep(seconds)
    tally.count()


async def stamp(context: dict[str, Any], sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


async def drain(jobs: int, at_once: int = AT_ONCE) -> Figures:
    """A backlog of no-op jobs, one worker."""
    await _fill(jobs, "noop")
    spent_s = cpu_s(url())
    took_s = await tally.seconds(jobs, _work(at_once))
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


async def single(jobs: int) -> Figures:
    """One caller."""
    pool = await create_pool(settings)
    return await one_by_one(lambda: pool.enqueue_job("noop"), jobs)


async def callers(jobs: int, callers: int) -> Figures:
    """Concurrent callers."""
    pool = await create_pool(settings)
    return await side_by_side(lambda: pool.enqueue_job("noop"), jobs, callers)


async def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    pool = await create_pool(settings)
    return await beside_a_sleeper(__file__, lambda sent_ns: pool.enqueue_job("stamp", sent_ns), jobs)


async def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    await _fill(jobs, "nap", seconds)
    return {"seconds": await tally.seconds(jobs, _work(at_once)), "ideal_s": jobs / at_once * seconds}


async def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    await _fill(jobs, "noop", PAYLOAD)
    await asyncio.sleep(CALM_S)  # until the server has seen that the connections are gone
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


async def consume() -> None:
    """The worker process of `latency`."""
    await _work(AT_ONCE)


async def _fill(jobs: int, name: str, *args: object) -> None:
    pool = await create_pool(settings)
    for start in range(0, jobs, CHUNK):
        await asyncio.gather(*(pool.enqueue_job(name, *args) for _ in range(min(CHUNK, jobs - start))))
    await pool.aclose(close_connection_pool=True)


async def _work(at_once: int) -> None:
    worker = Worker(
        functions=[func(each, name=each.__name__, keep_result=0) for each in (noop, nap, stamp)],
        redis_settings=settings,
        max_jobs=at_once,
        poll_delay=POLL_S,
        handle_signals=False,
        log_results=False,
    )
    await worker.async_run()


if __name__ == "__main__":
    measures = (drain, single, callers, latency, waiting, memory, consume)
    main_on_uvloop(__file__, measures, ("arq", "redis", "hiredis"))
