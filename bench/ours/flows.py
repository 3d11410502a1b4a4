"""Measures what a child of a wide flow costs, from the enqueue until the job that waits for all has run."""

from __future__ import annotations

import time

from bench.ours.place import Place
from bench.ours.tasks import app, count, one
from bench.ours.throughput import Figures
from limpet import chord


async def wide(place: Place, few: int, many: int) -> Figures:
    """A chord of `many`, by as many children in chords of `few`: how much dearer a child is for its siblings."""
    few_us = await _child_us(few, many // few)
    many_us = await _child_us(many, 1)
    return {"ratio": many_us / few_us, "child_us": many_us}


async def _child_us(width: int, chords: int) -> float:
    at_s = time.perf_counter()
    jobs = [await chord([one.job(n) for n in range(width)], count.job()).enqueue() for _ in range(chords)]
    await app.work(until_empty=True)
    took_s = time.perf_counter() - at_s
    for job in jobs:
        assert await job.result(0) == width
    return took_s / (width * chords) * 1_000_000
