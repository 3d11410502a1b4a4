"""Stores that somebody has damaged, on every engine: doctor sees it, a repair sets the books by the records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.core.endings.transition import Release, Succeed
from limpet.core.errors import QueueFull
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_bytes, id_text
from limpet.core.jobs.repair import Difference
from limpet.core.jobs.state import State
from limpet.core.records.log import FindingRecord
from limpet.ops import Operator
from limpet.stores.base import Examines
from limpet.stores.redis import RedisStore
from limpet_contract.behaviours.hooks import once, publish, told
from limpet_contract.bench import Bench
from tests.contract.harnesses import HARNESSES, SHARED
from tests.engines.vandal import Vandal

SMTP = GateRule("limit:smtp", concurrency=2)


@pytest.fixture(params=SHARED)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    harness = HARNESSES[request.param](tmp_path)
    yield await Bench.open(harness)
    await harness.close()


@pytest.fixture
def vandal(bench: Bench) -> Vandal:
    return Vandal(bench.store)


def operator(bench: Bench) -> Operator:
    return Operator(bench.store, "ada", clock=lambda: bench.clock.now_ms)


async def repaired(bench: Bench) -> list[Difference]:
    """What a repair has put right; after it there is nothing more, and the books balance."""
    assert isinstance(bench.store, Examines)
    planned = await operator(bench).repair(dry_run=True)
    report = await operator(bench).repair(reason="a test")
    assert {one.kind for one in planned.differences} <= {one.kind for one in report.differences}
    assert await bench.store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
    await bench.check_books()
    return [
        Difference(one.kind, one.what, one.found, one.right, tuple(map(id_bytes, one.jobs)))
        for one in report.differences
    ]


async def said(bench: Bench, code: str) -> FindingRecord:
    """What doctor says of one thing."""
    (finding,) = [each for each in await operator(bench).doctor() if each.code == code]
    return finding


STATES = [State.blocked, State.scheduled, State.ready, State.running, State.succeeded, State.dead, State.cancelled]


async def one_in(bench: Bench, state: State) -> bytes:
    """A job in this state, with a note or a result where it has had time for one."""
    hand = bench.hand(f"holder of {state.value}", tasks=("held",))
    match state:
        case State.blocked:
            return await bench.add(after=(await bench.add(delay_ms=60_000),), tags=("t",))
        case State.scheduled:
            return await bench.add(delay_ms=60_000)
        case State.ready:
            return await bench.add()
    id = await bench.add(task="held", limits=("smtp",))
    job = await hand.take()
    if state is not State.running:
        await hand.end({State.succeeded: "succeed", State.dead: "bury"}.get(state, "drop"), job)
    return id


@pytest.mark.parametrize("state", STATES)
async def test_a_record_that_was_removed_is_noticed_and_no_longer_counted(
    bench: Bench, vandal: Vandal, state: State
) -> None:
    await bench.declare(SMTP)
    for other in STATES:
        await one_in(bench, other)
    id = await one_in(bench, state)
    enqueued = (await bench.store.count()).enqueued
    vandal.remove(id)
    found = await said(bench, "books")
    assert (found.level, found.fix) == ("error", "limpet doctor --repair")
    found_now = await repaired(bench)
    assert any(one.kind == "count" for one in found_now)
    assert (await said(bench, "books")).level == "ok"
    counts = await bench.store.count()
    assert counts.enqueued == enqueued
    lost = state not in (State.succeeded, State.cancelled)
    assert counts.discarded == (1 if lost else 0)
    kinds = {entry.kind for entry in await bench.store.read("audit")}
    assert {"store.repair", "repair.count"} <= kinds


async def test_slots_that_no_job_holds_are_free_again(bench: Bench, vandal: Vandal) -> None:
    await bench.declare(SMTP)
    ids = await bench.add_many(3, limits=("smtp",))
    hand = bench.hand()
    (held,) = await hand.claim(1)
    gate = await bench.gate("limit:smtp")
    assert gate is not None
    vandal.leak(gate, 1)
    assert await hand.claim(2) == []
    assert (await said(bench, "slots")).fix == "limpet doctor --repair"
    assert Difference("slots", "limit:smtp", 2, 1) in await repaired(bench)
    assert [job.id for job in await hand.claim(3)] == [ids[1]], "one slot is held by a running job"
    await hand.succeed(held)


async def test_counters_are_set_by_the_records_and_the_totals_by_the_sum(bench: Bench, vandal: Vandal) -> None:
    await bench.add_many(4)
    vandal.miscount()
    assert (await said(bench, "conservation")).level == "error"
    found = await repaired(bench)
    assert Difference("count", "ready jobs of task work in queue default", 9, 4) in found
    assert Difference("total", "discarded", 0, 12) in found
    assert (await said(bench, "conservation")).level == "ok"


@pytest.mark.parametrize("more", [4, -2])
async def test_how_many_jobs_of_a_tenant_wait_is_counted_anew(bench: Bench, vandal: Vandal, more: int) -> None:
    await bench.declare(GateRule("queue:default", tenant_depth=3))
    await bench.add_many(3, tenant="acme")
    assert await bench.hand().claim(1)
    vandal.miscount_tenant("default", "acme", more)
    assert "waiting jobs of tenant acme" in (await said(bench, "books")).text
    found = await repaired(bench)
    assert found == [Difference("count", "waiting jobs of tenant acme in queue default", 2 + more, 2)]
    await bench.add(tenant="acme")
    with pytest.raises(QueueFull, match="3 wait"):
        await bench.add(tenant="acme")


async def test_what_a_counter_of_a_tenant_lacks_stays_the_same_while_its_jobs_move(
    bench: Bench, vandal: Vandal
) -> None:
    if isinstance(bench.store, RedisStore):
        pytest.skip("the count is set in one step, and nothing is added to it")
    await bench.add_many(2, tenant="acme")
    vandal.miscount_tenant("default", "acme", -1)
    assert len(await bench.hand().claim(2)) == 2
    assert Difference("count", "waiting jobs of tenant acme in queue default", -1, 0) in await repaired(bench)


async def test_ready_jobs_that_no_claim_sees_are_seen_again(bench: Bench, vandal: Vandal) -> None:
    ids = [*await bench.add_many(3), *await bench.add_many(2, task="other", keys=("customer",))]
    hand = bench.hand()
    assert await hand.claim(1)
    vandal.unlist(ids)
    assert await hand.claim(9) == []
    assert (await said(bench, "books")).level == "error"
    assert any(one.kind == "index" for one in await repaired(bench))
    assert {job.id for job in await hand.claim(9)} == set(ids[1:])


async def test_running_jobs_that_no_session_holds_return(bench: Bench, vandal: Vandal) -> None:
    await bench.declare(SMTP)
    ids = await bench.add_many(2, limits=("smtp",))
    hand, other = bench.hand(), bench.hand("other")
    await bench.sweep(20_000, hand)
    assert len(await hand.claim(2)) == 2
    vandal.forget_leases()
    assert isinstance(bench.store, Examines)
    report = await operator(bench).repair()
    assert any(one.kind == "lease" for one in report.differences)
    await bench.sweep(3_000, hand, other)
    assert await bench.states(ids) == [State.ready, State.ready]
    assert await bench.store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
    await bench.check_books()


async def test_a_child_of_a_job_that_vanished_does_not_wait_for_ever(bench: Bench, vandal: Vandal) -> None:
    parent = await bench.add()
    child = await bench.add(after=(parent,))
    vandal.remove(parent)
    found = await repaired(bench)
    (vanished,) = [one for one in found if one.kind == "vanished"]
    assert vanished.jobs == (parent,)
    view = await bench.view(child)
    assert (view.state, view.reason) == (State.cancelled, f"parent {id_text(parent)} was removed")
    named = {entry.job for entry in await bench.store.read("audit") if entry.kind == "repair.vanished"}
    assert named == {parent}


async def test_a_repair_counts_what_others_do_meanwhile(bench: Bench, vandal: Vandal) -> None:
    assert isinstance(bench.store, Examines)
    await bench.declare(SMTP)
    for id in (await bench.add_many(40, limits=("smtp",), tenant="acme"))[::2]:
        vandal.remove(id)
    over = asyncio.Event()

    async def work(name: str) -> None:
        hand = bench.hand(name)
        while not over.is_set():
            await bench.add_many(3, limits=("smtp",), tags=("new",), tenant="acme")
            await bench.add_many(3, delay_ms=1)
            for job in await hand.claim(5):
                await hand.settle(Succeed(job.id, job.token) if job.id[-1] % 3 else Release(job.id, job.token))

    workers = [asyncio.ensure_future(work(name)) for name in ("one", "two")]
    for _ in range(3):
        vandal.remove(await bench.add(tenant="acme"))
        await bench.store.repair(dry_run=False, now_ms=bench.clock.now_ms)
    over.set()
    await asyncio.gather(*workers)
    for name in ("one", "two"):
        await bench.store.leave(name, now_ms=bench.clock.now_ms)
    assert await bench.store.repair(dry_run=True, now_ms=bench.clock.now_ms) == []
    await bench.check_books()


async def test_jobs_of_a_lane_that_is_gone_are_dead_letters(bench: Bench, vandal: Vandal) -> None:
    ids = [await one_in(bench, state) for state in (State.ready, State.scheduled, State.running, State.succeeded)]
    vandal.forget_lanes()
    other = await (await bench.other()).add(task="another")
    found = await repaired(bench)
    assert any(one.kind == "unreadable" for one in found)
    assert await bench.states(ids) == [State.dead, State.dead, State.dead, State.succeeded]
    assert [job.id for job in await bench.hand("new").claim(9)] == [other]


async def test_hooks_hear_of_those_that_a_repair_buries(bench: Bench, vandal: Vandal) -> None:
    await publish(bench, State.dead)
    ids = [await one_in(bench, state) for state in (State.ready, State.scheduled, State.running, State.succeeded)]
    vandal.forget_lanes()
    await repaired(await bench.other())
    assert await told(bench) == once(ids[:3], State.dead)


async def test_what_a_running_job_took_and_nobody_can_read_stops_no_sweep(bench: Bench, vandal: Vandal) -> None:
    await bench.declare(SMTP)
    ids = await bench.add_many(2, limits=("smtp",))
    await bench.sweep(20_000)
    assert len(await bench.hand().claim(2)) == 2
    if not vandal.spoil_charges():
        pytest.skip("the engine's own types keep it readable")
    await bench.sweep(40_000)
    assert await bench.states(ids) == [State.ready, State.ready]
    assert {one.kind for one in await repaired(bench)} == {"slots"}
    assert [job.id for job in await bench.hand("new").claim(9)] == ids
