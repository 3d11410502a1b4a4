"""What a repair promises: a sound store stays as it is, byte by byte, whatever has happened in it."""

from __future__ import annotations

import pytest

from limpet.core.gate import BreakerRule, GateChange, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.lease import Note
from limpet.core.jobs.view import Retention
from limpet.stores.asking import examined
from limpet.stores.base import Examines
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS


class TestRepair:
    """Counters, slots and indexes are set by the records."""

    async def test_a_sound_store_has_nothing_to_repair(self, bench: Bench) -> None:
        store = bench.store
        if not isinstance(store, Examines):
            pytest.skip("this engine repairs nothing")
        assert await store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
        await _live(bench)
        before = await bench.everything(), await store.count(), await examined(store).accounts()
        assert await store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
        assert await store.repair(dry_run=False, now_ms=bench.clock.now_ms) == []
        assert (await bench.everything(), await store.count(), await examined(store).accounts()) == before
        await bench.sweep(30_000)
        assert await store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
        await bench.check_books()


async def _live(bench: Bench) -> None:
    """Every state, every ending; limits, a breaker, keys, notes, flows, parents and what was erased."""
    hand, flow = bench.hand(), bench.id()
    await bench.declare(
        GateRule("limit:smtp", concurrency=4), GateRule("breaker:api", breaker=BreakerRule()), GateRule("limit:one")
    )
    await bench.declare(GateRule("queue:default", depth=1_000, tenant_depth=1_000))
    for number, ending in enumerate(ENDINGS):
        unique = Unique(f"key {number}")
        await bench.put(bench.job(limits=("smtp",), unique=unique, flow=flow), bench.job(breaker="api"), bench.job())
        parent = await bench.add(args=b'{"x":"' + b"x" * 2_000 + b'"}')
        await bench.put(bench.job(after=(parent,)), bench.job(after=(parent,), if_parent_fails="run", flow=flow))
        for job in await hand.claim(8):
            await hand.save(job, Note("step", "one", b"1"))
            await hand.end(ending, job)
    bench.clock.advance(10)
    await bench.store.prune(Retention(succeeded_ms=1, cancelled_ms=None), 5, now_ms=bench.clock.now_ms)
    await bench.add_many(3, keys=("customer",), tenant="acme")
    await bench.change(GateChange("task:work", rule=GateRule("task:work", concurrency=2)))
    await hand.claim(2)
    await bench.add(delay_ms=90_000, expires_ms=100_000)
