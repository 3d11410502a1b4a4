"""taskiq's side of the bench, on Redis: `python bench/peers/with_taskiq.py MEASURE OPTIONS`.

Best documented settings: the list broker (the fastest; it takes a job out before running it), uvloop, hiredis, results
off, arguments not validated. It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from taskiq.api import run_receiver_task  # type: ignore[import-not-found]  # installed in an environment of its own
from taskiq_redis import ListQueueBroker  # type: ignore[import-not-found]  # the same

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
PREFETCH: Final = 100
CHUNK: Final = 500

logging.disable()  # it warns when a receiver is stopped
broker = ListQueueBroker(url())
tally = Tally()


@broker.task(task_name="noop")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    tally.count()


@broker.task(task_name="nap")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    await asyncio.sleep(seconds)
    tally.count()


@broker.task(task_name="stamp")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


async def drain(jobs: int, at_once: int = AT_ONCE, prefetch: int = PREFETCH) -> Figures:
    """A backlog of no-op jobs, one receiver."""
    await _fill(noop.kiq, jobs)
    spent_s = cpu_s(url())
    took_s = await tally.seconds(jobs, _receive(at_once, prefetch))
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


async def single(jobs: int) -> Figures:
    """One caller."""
    return await one_by_one(noop.kiq, jobs)


async def callers(jobs: int, callers: int) -> Figures:
    """Concurrent callers."""
    return await side_by_side(noop.kiq, jobs, callers)


async def latency(jobs: int) -> Figures:
    """From enqueue to another process."""
    return await beside_a_sleeper(__file__, stamp.kiq, jobs)


async def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time."""
    await _fill(lambda: nap.kiq(seconds), jobs)
    took_s = await tally.seconds(jobs, _receive(at_once, PREFETCH))
    return {"seconds": took_s, "ideal_s": jobs / at_once * seconds}


async def memory(jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server."""
    before = memory_bytes(url())
    await _fill(lambda: noop.kiq(PAYLOAD), jobs)
    await broker.connection_pool.disconnect()
    await asyncio.sleep(CALM_S)  # until the server has seen that
    return {"bytes_per_job": (memory_bytes(url()) - before) / jobs}


async def consume() -> None:
    """The worker process of `latency`."""
    await run_receiver_task(broker, max_async_tasks=AT_ONCE, validate_params=False, run_startup=True)


async def _receive(at_once: int, prefetch: int) -> None:
    await run_receiver_task(
        broker, max_async_tasks=at_once, max_prefetch=prefetch, validate_params=False, run_startup=True
    )


async def _fill(one: Callable[[], Coroutine[Any, Any, object]], jobs: int) -> None:
    for start in range(0, jobs, CHUNK):
        await asyncio.gather(*(one() for _ in range(min(CHUNK, jobs - start))))


if __name__ == "__main__":
    main_on_uvloop(
        __file__,
        (drain, single, callers, latency, waiting, memory, consume),
        ("taskiq", "taskiq-redis", "redis", "hiredis"),
    )
