"""Wake-ups reach those who can use them: each busy worker one hint, and nobody without a slot for what must start."""

from __future__ import annotations

import pytest

from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.lease import Serves
from limpet.stores.open import open_store
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand
from limpet_contract.harness import Clock
from tests.servers.flavours import REDIS
from tests.servers.redis import shared


@pytest.mark.parametrize("bulk", [True, False])
async def test_urgent_jobs_are_announced_to_as_many_busy_workers(bulk: bool) -> None:
    bench = Bench(open_store(shared(REDIS).url, f"wake-busy-{bulk}"), Clock())
    hands = [bench.hand(f"w{number}") for number in range(5)]
    await bench.add_many(5, priority=8)
    for hand in hands:
        await hand.take()
    jobs = [bench.job(priority=0, tenant=f"g{number}" if bulk else None) for number in range(5)]
    await bench.put(*jobs)
    assert [(await hand.wait(2_000)).urgent for hand in hands] == [True] * 5
    await bench.store.close()


@pytest.mark.parametrize("able", range(6))
async def test_a_worker_without_a_slot_is_not_woken_for_what_must_start_at_once(able: int) -> None:
    """Whatever the order of their signatures: the one with a slot is woken."""
    bench = Bench(open_store(shared(REDIS).url, f"wake-slots-{able}"), Clock())
    await bench.change(GateChange("queue:default", rule=GateRule("queue:default", concurrency=5)))
    full = Hand(bench.store, bench.clock, "full", Serves(tasks=("work", f"a{able}")))
    free = Hand(bench.store, bench.clock, "free", Serves(tasks=("work", f"b{able}")))
    assert await full.claim(1, slots=0) == []
    assert await free.claim(1) == []
    await bench.add()
    assert (await free.wait(2_000)).work
    assert not (await full.wait(1)).work
    await bench.store.close()
