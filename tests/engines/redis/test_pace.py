"""Paces on Redis: one script that settles many holds cuts once, tells once, and tells under a hold too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import msgspec
import pytest

from limpet.core.endings.transition import Hold
from limpet.core.gate import GateChange, GateRule
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import shared

ADAPTIVE = GateRule("limit:k", concurrency=8, floor=125, climb_ms=1_000_000)

_number = count()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench(open_store(shared(REDIS).url, f"pace-{next(_number)}"), Clock())
    await bench.declare(ADAPTIVE)
    await bench.add_many(12, limits=("k",))
    yield bench
    await bench.store.close()


async def paces(bench: Bench) -> list[int]:
    """The paces that were told of."""
    events = await bench.store.read("event")
    return [msgspec.json.decode(entry.data)["pace"] for entry in events if entry.kind == "limit.slowed"]


async def test_a_burst_that_is_settled_in_one_call_cuts_once(bench: Bench) -> None:
    hand = bench.hand()
    await hand.settle(*(Hold(job.id, job.token, "limit:k", 1_000, "429") for job in await hand.claim(8)))
    bench.clock.advance(1_000)
    assert len(await hand.claim(12)) == 4
    assert await paces(bench) == [500]


async def test_a_limit_that_is_held_for_longer_tells_that_it_goes_slower(bench: Bench) -> None:
    hand = bench.hand()
    await bench.change(GateChange("limit:k", ceiling=900))
    job = await hand.take()
    await bench.change(GateChange("limit:k", hold_ms=60_000))
    await hand.hold(job, "limit:k", 10)
    assert await paces(bench) == [450]
