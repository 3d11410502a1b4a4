"""Behaviours of depth limits: a full queue takes no new jobs, and everything that it holds goes its way."""

from __future__ import annotations

import pytest

from limpet.core.errors import QueueFull
from limpet.core.gate import GateChange, GateRule
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet.stores.base import MARK, RetryRequest
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

MAIL = "queue:mail"
COMES_BACK = ["fail", "release", "snooze", "sleep", "hold", "lose"]


async def limit(bench: Bench, depth: int | None = None, tenant_depth: int | None = None) -> None:
    """An operator's depth for the queue "mail"."""
    await bench.change(GateChange(MAIL, rule=GateRule(MAIL, depth=depth, tenant_depth=tenant_depth)))


async def refused(bench: Bench, count: int = 1, **options: str) -> QueueFull:
    """Enqueue in one call what must be refused, and leave no trace."""
    jobs = [bench.job(queue="mail", tenant=options.get("tenant")) for _ in range(count)]
    before = await bench.store.count()
    with pytest.raises(QueueFull) as caught:
        await bench.put(*jobs)
    assert await bench.store.get([job.id for job in jobs]) == [None] * count
    assert await bench.store.count() == before
    return caught.value


@asynchronous
class TestDepth:
    async def test_a_queue_takes_as_many_as_may_wait_and_no_more(self, bench: Bench) -> None:
        await limit(bench, 3)
        await bench.add_many(2, queue="mail")
        await bench.add(queue="mail", task="other", priority=0)
        error = await refused(bench)
        assert (error.queue, error.tenant, error.room) == ("mail", None, 0)
        assert "'mail' is full: its depth is 3, 3 wait" in str(error)
        await bench.add(queue="other")

    async def test_a_bulk_is_stored_whole_or_not_at_all(self, bench: Bench) -> None:
        await limit(bench, 5)
        assert (await refused(bench, 6)).room == 5
        await bench.add_many(3, queue="mail")
        assert (await refused(bench, 3)).room == 2
        mixed = [bench.job(queue="other"), *(bench.job(queue="mail") for _ in range(3))]
        with pytest.raises(QueueFull):
            await bench.put(*mixed)
        assert await bench.states([mixed[0].id]) == [None]
        await bench.add_many(2, queue="mail")
        await refused(bench)

    async def test_a_claim_makes_room_and_so_do_a_cancel_and_an_expiry(self, bench: Bench) -> None:
        await limit(bench, 3)
        await bench.add(queue="mail", priority=0)
        late = await bench.add(queue="mail", delay_ms=60_000, expires_ms=5_000)
        gone = await bench.add(queue="mail")
        await refused(bench)
        await bench.hand().take()
        await bench.add(queue="mail")
        await refused(bench)
        await bench.cancel(gone)
        await bench.add(queue="mail")
        await refused(bench)
        await bench.sweep(7_000, *bench.hands)
        assert await bench.state(late) is State.cancelled
        await bench.add(queue="mail")
        await refused(bench)

    @pytest.mark.parametrize("how", COMES_BACK)
    async def test_what_comes_back_is_never_refused_and_counts_again(self, bench: Bench, how: str) -> None:
        await limit(bench, 2, 2)
        hand = bench.hand()
        await bench.add_many(2, queue="mail", tenant="acme")
        jobs = await hand.claim(2)
        await bench.add_many(2, queue="mail", tenant="acme")
        await hand.end(how, *jobs)
        assert (await bench.store.count()).total(State.running) == 0
        for _ in range(2):  # four wait where two may
            assert "its depth is 2, 4 wait" in str(await refused(bench, tenant="acme"))
            await bench.check_books()
        bench.clock.advance(1)

    async def test_who_waits_for_a_parent_or_a_time_counts_and_is_released_whatever_the_depth(
        self, bench: Bench
    ) -> None:
        await limit(bench, 3)
        parent = bench.job(queue="mail", priority=0)
        await bench.put(
            parent, bench.job(queue="mail", after=(parent.id,)), bench.job(queue="mail", delay_ms=10_000, priority=1)
        )
        await refused(bench)
        hand = bench.hand()
        job = await hand.take()
        await bench.add(queue="mail")
        await hand.succeed(job)
        bench.clock.advance(10_000)
        await refused(bench)
        assert len(await hand.drain()) == 3
        await bench.add_many(3, queue="mail")

    async def test_a_dead_job_is_retried_into_a_full_queue(self, bench: Bench) -> None:
        await limit(bench, 1, 1)
        dead = await bench.add(queue="mail", tenant="acme")
        hand = bench.hand()
        await hand.bury(await hand.take())
        await bench.add(queue="mail", tenant="acme")
        assert await bench.store.retry(RetryRequest((dead,)), now_ms=bench.clock.now_ms) == ["retried"]
        assert "its depth is 1, 2 wait" in str(await refused(bench, tenant="acme"))
        await hand.drain()
        await bench.add(queue="mail", tenant="acme")

    async def test_a_job_that_is_there_is_answered_by_a_full_queue(self, bench: Bench) -> None:
        await limit(bench, 2)
        plain, keyed = bench.job(queue="mail"), bench.job(queue="mail", unique=Unique("k"))
        await bench.put(plain, keyed)
        again = bench.job(queue="mail", unique=Unique("k", on_duplicate="replace"), args=b'{"n":2}')
        answers = await bench.put(plain, again)
        assert [(answer.id, answer.existing) for answer in answers] == [(plain.id, True), (keyed.id, True)]
        assert (await bench.view(keyed.id)).args == b'{"n":2}'
        await refused(bench)
        with pytest.raises(QueueFull):
            await bench.put(plain, bench.job(queue="mail"))

    async def test_a_replacement_takes_its_place_with_it_into_another_queue(self, bench: Bench) -> None:
        await limit(bench, 1, 1)
        await bench.add(queue="mail", tenant="acme", unique=Unique("k"))
        await bench.put(bench.job(queue="other", tenant="acme", unique=Unique("k", on_duplicate="replace")))
        await bench.add(queue="mail", tenant="acme")
        await refused(bench, tenant="acme")

    async def test_each_tenant_has_a_depth_of_its_own(self, bench: Bench) -> None:
        await limit(bench, 6, 2)
        await bench.add_many(2, queue="mail", tenant="acme")
        await bench.add(queue="mail", tenant="zeta", task="other")
        error = await refused(bench, tenant="acme")
        assert (error.queue, error.tenant, error.room) == ("mail", "acme", 0)
        assert "tenant 'acme'" in str(error)
        assert (await refused(bench, 2, tenant="zeta")).room == 1
        await bench.add(queue="mail", tenant="zeta")
        await bench.add(queue="other", tenant="acme")
        await bench.add_many(2, queue="mail")  # of no tenant
        assert (await refused(bench)).tenant is None
        await bench.hand(queues=("mail",)).drain()
        await bench.add_many(2, queue="mail", tenant="acme")
        await refused(bench, tenant="acme")

    async def test_jobs_from_before_the_limit_count(self, bench: Bench) -> None:
        await bench.add_many(4, queue="mail", tenant="acme")
        hand = bench.hand()
        await hand.claim(1)
        await limit(bench, tenant_depth=3)
        assert "its depth is 3, 3 wait" in str(await refused(bench, tenant="acme"))
        await limit(bench, 3)
        await refused(bench)
        await hand.claim(2)
        await bench.add_many(2, queue="mail")
        await refused(bench)

    async def test_jobs_that_came_while_there_was_no_limit_count_when_it_is_back(self, bench: Bench) -> None:
        await limit(bench, 3, 3)
        await bench.add(queue="mail", tenant="acme")
        await refused(bench, 3, tenant="acme")
        await limit(bench)
        await bench.add_many(4, queue="mail", tenant="acme")
        await limit(bench, 7, 6)
        await bench.add(queue="mail", tenant="acme")
        assert "tenant 'acme'" in str(await refused(bench, tenant="acme"))
        await limit(bench, 6)
        assert "its depth is 6, 6 wait" in str(await refused(bench))

    async def test_code_declares_it_with_the_first_call_and_an_operator_wins(self, bench: Bench) -> None:
        rule = GateRule(MAIL, depth=2)
        with pytest.raises(QueueFull):
            await bench.put(*(bench.job(queue="mail") for _ in range(3)), rules=[rule])
        await bench.put(*(bench.job(queue="mail") for _ in range(2)), rules=[rule])
        with pytest.raises(QueueFull):
            await bench.put(bench.job(queue="mail"), rules=[rule])
        await limit(bench, 3)
        await bench.put(bench.job(queue="mail"), rules=[rule])
        with pytest.raises(QueueFull):
            await bench.put(bench.job(queue="mail"), rules=[rule])
        gate = (await bench.change(GateChange(MAIL, rule=GateRule(MAIL), declared=True, clear=True)))[0]
        assert (gate.rule.depth, gate.declared) == (None, True)
        await bench.add(queue="mail")

    async def test_it_is_kept_with_the_gate(self, bench: Bench) -> None:
        await limit(bench, 7, 5)
        (gate,) = await bench.store.gates(keys=[MAIL])
        assert (gate.rule.depth, gate.rule.tenant_depth, gate.declared) == (7, 5, False)
        ids = await bench.add_many(3, queue="mail")
        assert await bench.hand().ids(5) == ids

    async def test_a_batch_of_an_outbox_is_refused_and_a_tick_is_not(self, bench: Bench) -> None:
        await limit(bench, 1)
        await bench.add(queue="mail")
        job, now_ms = bench.job(queue="mail"), bench.clock.now_ms
        with pytest.raises(QueueFull):
            await bench.store.relay("orders", 1, [job], now_ms=now_ms)
        assert await bench.store.controls(MARK) == []
        assert await bench.store.relay("orders", 1, [job], always=True, now_ms=now_ms) is not None
        assert "its depth is 1, 2 wait" in str(await refused(bench))
        await bench.hand().drain()
        assert await bench.store.relay("orders", 2, [bench.job(queue="mail")], now_ms=now_ms) is not None

    async def test_it_holds_through_many_calls_and_claims(self, bench: Bench) -> None:
        await limit(bench, 20, 8)
        hand = bench.hand()
        stored = taken = 0
        for turn in range(120):
            tenant = ("acme", "zeta", None)[turn % 3]
            try:
                await bench.put(*(bench.job(queue="mail", tenant=tenant) for _ in range(turn % 4 + 1)))
                stored += turn % 4 + 1
            except QueueFull:
                jobs = await hand.claim(3)
                taken += len(jobs)
                await hand.succeed(*jobs)
            counts = await bench.store.count()
            assert counts.total(State.ready) == stored - taken <= 20
        assert taken > 30
        await bench.check_books()
