"""Explanations from what real engines answer: more urgent jobs, taken threads, and workers that have gone silent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.client.registry import publish
from limpet.core.jobs.state import State
from limpet.ops.operator import Operator
from tests.contract.harnesses import HARNESSES, SHARED
from tests.runtime.running import Bench


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield Bench(await harness.open())
    await harness.close()


async def noop() -> None: ...


async def test_more_urgent_jobs_are_counted(bench: Bench) -> None:
    spec = bench.task(noop)
    await bench.claim_as("w1")
    for priority in ("critical", "normal", "high", "low"):
        id = await bench.put(spec, priority=priority)
    explained = await Operator(bench.store, "ada").explain(id)
    assert [reason.code for reason in explained.reasons] == ["position"]
    assert explained.reasons[0].text.startswith("3 jobs are more urgent")


async def test_a_job_that_waits_for_a_thread_says_that_all_are_taken(bench: Bench) -> None:
    go_on = threading.Event()

    def export() -> None:
        go_on.wait(60)

    spec = bench.task(export)
    await publish(bench.store, [spec])
    first, second = await bench.put(spec), await bench.put(spec)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"threads": 1, "beat_ms": 20}).run(stop))
    try:
        await bench.until([first], State.running)
        words = "the only thread of the one worker that can run it is taken"
        async with asyncio.timeout(60):
            while words not in str(await Operator(bench.store, "ada").explain(second)):
                pass  # it may be claimed ahead for a moment, and the next beat says what is taken
    finally:
        go_on.set()
        stop.set()
        await work


async def test_a_job_whose_worker_was_killed_is_said_to_wait_for_another(bench: Bench) -> None:
    id = await bench.put(bench.task(noop))
    ttl_ms = 50
    while not await bench.claim_as(f"lives for {ttl_ms} ms", ttl_ms=ttl_ms):
        ttl_ms *= 2  # on a slow machine it was over before the claim
    while await bench.store.sessions():
        pass  # the engine's own clock decides when it has gone silent
    explained = await Operator(bench.store, "ada").explain(id)
    assert [reason.code for reason in explained.reasons] == ["worker_lost"]
