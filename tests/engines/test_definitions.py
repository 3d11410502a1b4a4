"""Lanes that a process keeps in memory, on engines that read them apart: when some are forgotten, no job is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.jobs.state import State
from limpet.stores.postgres import PostgresStore
from limpet.stores.redis import RedisStore
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES


@pytest.fixture(params=["redis", "postgres"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


async def test_a_claim_reads_all_its_jobs_while_other_calls_forget_lanes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, hand = bench.store, bench.hand()
    assert isinstance(store, RedisStore | PostgresStore)
    known = await bench.add(tenant="known")
    await hand.claim()
    await store.get([known])  # from here on the server knows the script
    jobs = {await bench.add(tenant="known"), await bench.add(tenant="new")}
    asked: list[str] = []

    def note(verb: str, when: str) -> None:
        asked.append(f"{verb} {when}")
        if asked.count("claim before") == 2:  # the claim is answered, and reads the lane that it does not know
            monkeypatch.setattr("limpet.stores.server.store.MOST", 1)

    async def look() -> None:
        while not claim.done():
            await store.get([known])

    store._clients.here().intercept = note
    claim = asyncio.create_task(hand.ask(2))
    await asyncio.gather(*(look() for _ in range(3)))
    assert {job.id for job in claim.result().jobs} == jobs
    assert await bench.states(list(jobs)) == [State.running] * 2, "none was taken for one that cannot be read"
