"""Behaviours of lost leases: the attempt is refunded, the loss is counted, and poison ends in the dead letters."""

from __future__ import annotations

import pytest

from limpet.core.jobs.job import Policy
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestLosses:
    @pytest.mark.parametrize("how", ["settled by a supervisor", "swept"])
    async def test_a_loss_refunds_the_attempt_and_is_counted(self, bench: Bench, how: str) -> None:
        id = await bench.add()
        hand, other = bench.hand(), bench.hand("w2")
        job = await hand.take()
        if how == "swept":
            await bench.lose(id, other)
        else:
            answer = await other.lose(job)
            assert (answer.answer, answer.state) == ("done", State.ready)
        view = await bench.view(id)
        assert (view.state, view.attempt, view.lost, view.token, view.session) == (State.ready, 0, 1, None, None)
        assert (await bench.store.count()).lost == 1
        again = await other.take()
        assert (again.attempt, again.lost) == (1, 1)

    async def test_a_lost_job_goes_back_to_the_front(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand = bench.hand()
        job = await hand.take()
        bench.clock.advance(10)
        await hand.lose(job)
        assert await hand.drain(1) == ids

    async def test_jobs_lost_together_keep_their_order(self, bench: Bench) -> None:
        ids = await bench.add_many(5)
        other = bench.hand("w2")
        await bench.hand().claim(3)
        await bench.lose(ids[0], other)
        assert await other.drain(1) == ids

    async def test_a_job_lost_too_often_is_dead_as_poison(self, bench: Bench) -> None:
        id = await bench.add(policy=Policy(max_lost=3))
        hand = bench.hand()
        for number in (1, 2):
            assert (await hand.lose(await hand.take())).state is State.ready
            assert (await bench.view(id)).lost == number
        assert (await hand.lose(await hand.take())).state is State.dead
        view = await bench.view(id)
        assert (view.state, view.lost, view.finished_at_ms) == (State.dead, 3, bench.clock.now_ms)
        assert "poison" in f"{view.reason} {view.error_type} {view.cause}".lower()
        last = (await attempts_of(bench.store, id))[-1]
        assert last.kind == "lost"
        assert (await bench.store.count()).lost == 3

    async def test_the_sweep_finds_poison_too(self, bench: Bench) -> None:
        id = await bench.add(policy=Policy(max_lost=2))
        for _ in range(2):
            await bench.hand(ttl_ms=2_000).take()
            await bench.lose(id)
        view = await bench.view(id)
        assert (view.state, view.lost) == (State.dead, 2)
        assert (await attempts_of(bench.store, id))[-1].kind == "lost"

    async def test_max_lost_one_is_at_most_once(self, bench: Bench) -> None:
        id = await bench.add(policy=Policy(max_lost=1))
        hand = bench.hand()
        assert (await hand.lose(await hand.take())).state is State.dead
        assert await hand.claim() == []
        assert await bench.state(id) is State.dead

    async def test_a_proven_crash_is_dead_at_once(self, bench: Bench) -> None:
        id = await bench.add(policy=Policy(max_lost=10))
        hand = bench.hand()
        answer = await hand.lose(await hand.take(), proven=True)
        assert (answer.answer, answer.state) == ("done", State.dead)
        last = (await attempts_of(bench.store, id))[-1]
        assert (last.kind, last.number) == ("lost", 1)

    async def test_neighbours_of_a_poison_job_spend_nothing(self, bench: Bench) -> None:
        ids = await bench.add_many(3)
        hand, supervisor = bench.hand("child"), bench.hand("supervisor")
        guilty, *others = await hand.claim(3)
        await supervisor.beat()
        await supervisor.lose(guilty, proven=True)
        await supervisor.release(*others)
        again = await supervisor.claim(5)
        assert [(job.id, job.attempt, job.lost) for job in again] == [(id, 1, 0) for id in ids[1:]]

    async def test_a_poison_jobs_death_cancels_its_dependents(self, bench: Bench) -> None:
        parent = await bench.add(policy=Policy(max_lost=1))
        child = await bench.add(after=(parent,))
        await bench.hand(ttl_ms=2_000).take()
        await bench.lose(parent)
        assert await bench.states([parent, child]) == [State.dead, State.cancelled]

    async def test_a_lost_job_that_was_asked_to_stop_is_cancelled(self, bench: Bench) -> None:
        id = await bench.add()
        await bench.hand(ttl_ms=2_000).take()
        assert await bench.cancel(id) == ["cancelling"]
        await bench.lose(id)
        assert await bench.state(id) is State.cancelled
