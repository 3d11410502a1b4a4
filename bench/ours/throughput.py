"""Measures how many jobs go in and out per second, and what that costs."""

from __future__ import annotations

import asyncio
import time

from bench.meter import cpu_s, memory_bytes, per_call
from bench.ours.place import Place, fill
from bench.ours.tasks import app, carry, nap, noop
from limpet.runtime.settings import WorkerPlan, WorkerSettings
from limpet.runtime.worker import Worker

Figures = dict[str, float]

PAYLOAD = "x" * 100
KEPT = 100


async def drain(place: Place, jobs: int) -> Figures:
    """A backlog of no-op jobs, one worker process, from its start until everything is settled."""
    await fill(noop.job(), jobs)
    before_s, at_s = cpu_s(place.url), time.perf_counter()
    report = await app.work(until_empty=True)
    took_s, spent_s = time.perf_counter() - at_s, cpu_s(place.url) - before_s
    assert report.succeeded == jobs, f"{report.succeeded} of {jobs} jobs succeeded"
    return {"jobs_per_s": jobs / took_s, "cpu_s_per_10k": spent_s / jobs * 10_000}


async def steady(place: Place, jobs: int) -> Figures:
    """The same where few finished jobs are kept, so that as many are erased as end: a store that has run for long."""
    await app.close()
    app.rebind(f"{place.url}?keep={KEPT}")
    await app.store.open()
    return await drain(place, jobs)


async def bulk(place: Place, jobs: int, per_call: int) -> Figures:
    """Bulk enqueue through the public client, arguments bound and encoded for each job."""
    await app.store.open()
    at_s = time.perf_counter()
    for start in range(0, jobs, per_call):
        await app.enqueue_many(noop.job() for _ in range(min(per_call, jobs - start)))
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def single(place: Place, jobs: int) -> Figures:
    """One caller, each enqueue awaited before the next."""
    await noop.enqueue()
    at_s = time.perf_counter()
    for _ in range(jobs):
        await noop.enqueue()
    return per_call(jobs, time.perf_counter() - at_s)


async def callers(place: Place, jobs: int, callers: int) -> Figures:
    """Concurrent callers, each awaiting its own enqueues one by one."""
    await noop.enqueue()

    async def caller() -> None:
        for _ in range(jobs // callers):
            await noop.enqueue()

    at_s = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return {"jobs_per_s": jobs / (time.perf_counter() - at_s)}


async def waiting(place: Place, jobs: int, seconds: float, at_once: int) -> Figures:
    """Jobs that wait for something outside, many at the same time: how far the worker is from the ideal time."""
    await fill(nap.job(seconds), jobs)
    # Ordinary jobs may take every place here: the figure is about `at_once` jobs side by side.
    plan = WorkerPlan(store=app.store, parts=app.parts(), settings=WorkerSettings(concurrency=at_once))
    worker = Worker(plan)
    at_s = time.perf_counter()
    await worker.run(until_empty=True)
    return {"seconds": time.perf_counter() - at_s, "ideal_s": jobs / at_once * seconds}


async def memory(place: Place, jobs: int) -> Figures:
    """What a waiting job with 100 bytes of payload takes in the server, once our connections are gone."""
    before = memory_bytes(place.url)
    await fill(carry.job(PAYLOAD), jobs)
    await app.close()
    await asyncio.sleep(0.1)  # until the server has seen that
    return {"bytes_per_job": (memory_bytes(place.url) - before) / jobs}
