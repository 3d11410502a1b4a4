"""taskiq's side of the bench, on Redis: `python bench/peers/with_taskiq.py MEASURE OPTIONS`.

Best documented settings: the list broker (the fastest; it takes a job out before running it), uvloop, hiredis, results
off, arguments not validated. It has no call for many jobs, so `bulk` is not measured.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop
from taskiq.api import run_receiver_task  # type: ignore[import-not-found]  # installed in an environment of its own
from taskiq_redis import ListQueueBroker  # type: ignore[import-not-found]  # the same

from bench.meter import cpu_s, memory_bytes
from bench.peers.adapter import CALM_S, PAYLOAD, Figures, main, say_wait, sleeper, url, waits

AT_ONCE: Final = 100
PREFETCH: Final = 100
CHUNK: Final = 500

logging.disable()  # it warns when a receiver is stopped
broker = ListQueueBroker(url())
counted: list[int] = [0, 0]  # jobs run, jobs awaited
done = asyncio.Event()


@broker.task(task_name="noop")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def noop(payload: str = "") -> None:
    """The cheapest job there is."""
    _count()


@broker.task(task_name="nap")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def nap(seconds: float) -> None:
    """A job that waits for something outside."""
    await asyncio.sleep(seconds)
    _count()


@broker.task(task_name="stamp")  # type: ignore[untyped-decorator]  # taskiq is not here for the checker
async def stamp(sent_ns: int) -> None:
    """Say how long this job waited."""
    say_wait(sent_ns)


async def drain(jobs: int, at_once: int = AT_ONCE, prefetch: int = PREFETCH) -> Figures:
    """A backlog of no-op jobs, one receiver."""
    await _fill(noop.kiq, jobs)
    spent_s = cpu_s(url())
    took_s = await _received(jobs, at_once, prefetch)
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": (cpu_s(url()) - spent_s) / jobs * 10_000}


async def single(jobs: int) -> Figures:
    """One caller, each enqueue awaited before the next."""
    await noop.kiq()
    at_s = time.perf_counter()
    for _ in range(jobs):
        await noop.kiq()
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def callers(jobs: int, callers: int) -> Figures:
    """Concurrent callers, each awaiting its own enqueues one by one."""
    await noop.kiq()

    async def caller() -> None:
        for _ in range(jobs // callers):
            await noop.kiq()

    at_s = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def latency(jobs: int) -> Figures:
    """From before enqueue to the handler's first line, in another process that is idle."""
    loop = asyncio.get_running_loop()
    with sleeper(__file__) as waited_ms:

        async def one() -> float:
            await stamp.kiq(time.monotonic_ns())
            return waited_ms()

        # The pauses between jobs may hold up this thread, but not the loop that sends.
        return await asyncio.to_thread(waits, jobs, lambda: asyncio.run_coroutine_threadsafe(one(), loop).result())


async def waiting(jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, so many at once."""
    await _fill(lambda: nap.kiq(seconds), jobs)
    return {"seconds": await _received(jobs, at_once, PREFETCH), "ideal_s": jobs / at_once * seconds}


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


async def _received(jobs: int, at_once: int, prefetch: int) -> float:
    counted[1] = jobs
    at_s = time.perf_counter()
    receiver = asyncio.create_task(
        run_receiver_task(
            broker, max_async_tasks=at_once, max_prefetch=prefetch, validate_params=False, run_startup=True
        )
    )
    await done.wait()
    took_s = time.perf_counter() - at_s
    receiver.cancel()
    await asyncio.wait([receiver], timeout=5)
    return took_s


async def _fill(one: Callable[[], Coroutine[Any, Any, object]], jobs: int) -> None:
    for start in range(0, jobs, CHUNK):
        await asyncio.gather(*(one() for _ in range(min(CHUNK, jobs - start))))


def _count() -> None:
    counted[0] += 1
    if counted[0] == counted[1]:
        done.set()


def _looped(measure: Callable[..., Coroutine[Any, Any, Figures | None]]) -> Callable[..., Figures | None]:
    def run(**options: Any) -> Figures | None:
        return uvloop.run(measure(**options))

    return run


if __name__ == "__main__":
    found = (drain, single, callers, latency, waiting, memory, consume)
    main(__file__, {measure.__name__: _looped(measure) for measure in found})
