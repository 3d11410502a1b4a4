"""Measures how long jobs wait: when nothing else is to do, beside a flood, and after a worker was killed."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from bench.meter import percentiles
from bench.ours.place import Place, fill
from bench.ours.tasks import app, flood, nap, outlive, stamp
from bench.ours.throughput import Figures
from bench.ours.worker import WorkerProcess
from limpet.core.jobs.state import State

CALM_S = 0.02  # between two jobs, so that the worker is asleep again
SWEPT_S = 17  # a new store's janitors take nothing back for one lease time (15 s): this one has been swept for longer


async def latency(place: Place, jobs: int) -> Figures:
    """From before enqueue to the handler's first line, in another process that sleeps."""
    with WorkerProcess(place.url, place.inbox):
        await _ready(place)
        waits_ms = []
        for _ in range(jobs):
            waits_ms.append(await _one(place))
            await asyncio.sleep(CALM_S * (0.5 + random.random()))
    return percentiles(waits_ms)


async def idle(place: Place, seconds: float) -> Figures:
    """What a worker with nothing to do costs, supervisor included."""
    with WorkerProcess(place.url, place.inbox) as worker:
        await _ready(place)
        await asyncio.sleep(1)  # what its start left to do
        return {"percent": await worker.idle_cpu_percent(seconds)}


async def urgent(place: Place, jobs: int, every_s: float, low: int, low_s: float, concurrency: int) -> Figures:
    """A critical job now and then while a backlog of low ones drains at full speed."""
    await fill(nap.job(low_s) if low_s else flood.job(), low)
    with WorkerProcess(place.url, place.inbox, concurrency=concurrency):
        await _ready(place)
        waits_ms = []
        for _ in range(jobs):
            waits_ms.append(await _one(place))
            await asyncio.sleep(every_s * (0.5 + random.random()))
        counts = await app.store.count()
    assert counts.total(State.ready), "the flood was over before the last critical job: give it more jobs"
    return percentiles(waits_ms)


async def recovery(place: Place, ttl_ms: int) -> Figures:
    """From SIGKILL of a worker, supervisor included, to the start of its job in another one."""
    settings: dict[str, Any] = {"ttl_ms": ttl_ms, "beat_ms": ttl_ms // 3}
    with WorkerProcess(place.url, place.inbox, victim=True, **settings) as victim:
        await outlive.enqueue()
        await place.inbox.stamp()
        with WorkerProcess(place.url, place.inbox, **settings):
            await _ready(place)
            await asyncio.sleep(SWEPT_S)
            killed_ns = time.monotonic_ns()
            victim.kill()
            _, started_ns = await place.inbox.stamp()
    return {"seconds": (started_ns - killed_ns) / 1e9, "lease_s": ttl_ms / 1000}


async def _one(place: Place) -> float:
    sent_ns = time.monotonic_ns()
    await stamp.enqueue(sent_ns)
    number, started_ns = await place.inbox.stamp()
    assert number == sent_ns, "a stamp of another job"
    return (started_ns - sent_ns) / 1e6


async def _ready(place: Place) -> None:
    """A first job, and a few more for what is done once only."""
    for _ in range(5):
        await stamp.enqueue(0)
        await place.inbox.stamp()
