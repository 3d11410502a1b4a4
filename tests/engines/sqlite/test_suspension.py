"""What SQLite alone promises about suspension: nobody is woken for a wait that no time ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from limpet.core.jobs.lease import Wake
from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = SqliteStore(None)
    yield Bench(store, Clock())
    await store.close()


async def test_a_wait_for_an_event_alone_wakes_no_worker(bench: Bench) -> None:
    busy, idle = bench.hand("busy"), bench.hand("idle")
    await bench.add_many(2)
    jobs = await busy.claim(2)
    assert await idle.claim() == []
    await busy.suspend(jobs[0], None, "approved")
    assert await idle.wait(1) == Wake(), "a commit in memory is told before it is answered"
    await busy.suspend(jobs[1], 60_000, "approved")
    assert (await idle.wait(1)).work
