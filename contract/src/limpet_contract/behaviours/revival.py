"""Behaviours of revival: a dead job that is retried brings back the dependents it took down, if they can still run."""

from __future__ import annotations

import pytest

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Unique
from limpet.core.jobs.state import State
from limpet_contract.behaviours.dead import dead
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


async def fail_for_good(bench: Bench, id: bytes, how: str) -> None:
    """End the next job, which must be this one, in a way that no retry undoes."""
    if how == "dropped":
        hand = bench.hand("undertaker")
        await hand.drop(await hand.take())
    elif how == "cancelled":
        await bench.cancel(id)
    elif how == "discarded":
        await dead(bench, id)
        await bench.store.discard([id], now_ms=bench.clock.now_ms)
    else:
        bench.clock.advance(1_001)
        assert await bench.hand("undertaker").claim() == []


@asynchronous
class TestRevival:
    async def test_a_retry_revives_the_dependents_that_its_death_cancelled(self, bench: Bench) -> None:
        parent = await bench.add(task="parent")
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        other = await bench.add(after=(parent,))
        await bench.cancel(other, reason="by hand")
        await dead(bench, parent)
        assert await bench.states([child, grandchild]) == [State.cancelled] * 2
        await bench.retry(parent)
        assert await bench.states([parent, child, grandchild, other]) == [
            State.ready,
            State.blocked,
            State.blocked,
            State.cancelled,
        ]
        assert await bench.hand().drain(1) == [parent, child, grandchild]

    async def test_a_retry_revives_those_who_came_after_the_death_through_all_levels(self, bench: Bench) -> None:
        """One by one below what the death had cancelled, and a chain in one call below the dead job itself."""
        parent = await bench.add(task="parent")
        child = await bench.add(after=(parent,))
        undertaker = bench.hand("undertaker")
        await undertaker.bury(await undertaker.take(), message="no such host")
        late = await bench.add(after=(child,))
        later = await bench.add(after=(late,))
        first = bench.job(after=(parent,))
        second = bench.job(after=(first.id,))
        chain = [first, second, bench.job(after=(second.id,))]
        await bench.put(*chain)
        below = [late, later, *(job.id for job in chain)]
        assert await bench.states(below) == [State.cancelled] * 5
        assert [(await bench.view(id)).reason for id in below] == [
            f"parent {id_text(above)} is {word}: no such host"
            for above, word in (
                (child, "cancelled"),
                (late, "cancelled"),
                (parent, "dead"),
                (first.id, "cancelled"),
                (second.id, "cancelled"),
            )
        ]
        await bench.retry(parent)
        assert await bench.states(below) == [State.blocked] * 5
        assert set(await bench.hand().drain(1)) == {parent, child, *below}

    async def test_a_retry_revives_nobody_who_came_below_one_that_was_cancelled_by_hand(self, bench: Bench) -> None:
        parent = await bench.add(task="parent")
        child = await bench.add(after=(parent,))
        await bench.cancel(child, reason="by hand")
        await dead(bench, parent)
        late = await bench.add(after=(child,))
        await bench.retry(parent)
        assert await bench.hand().drain(1) == [parent]
        assert await bench.state(late) is State.cancelled

    async def test_a_retry_revives_nobody_whom_another_parents_cancellation_took_down(self, bench: Bench) -> None:
        unwanted, failing = await bench.add(task="unwanted"), await bench.add(task="failing")
        child = await bench.add(after=(unwanted, failing))
        await bench.cancel(unwanted)
        await dead(bench, failing)
        await bench.retry(failing)
        assert await bench.state(child) is State.cancelled

    @pytest.mark.parametrize("how", ["dropped", "cancelled", "expired", "discarded"])
    async def test_a_retry_revives_nobody_whose_other_parent_has_failed_for_good(self, bench: Bench, how: str) -> None:
        failing = await bench.add(task="failing", priority=0)
        other = await bench.add(task="other", expires_ms=1_000 if how == "expired" else None)
        child = await bench.add(after=(failing, other))
        await dead(bench, failing)
        await fail_for_good(bench, other, how)
        await bench.retry(failing)
        assert await bench.hand().drain() == [failing]
        assert await bench.state(child) is State.cancelled

    async def test_a_retry_revives_those_whose_other_parent_has_succeeded(self, bench: Bench) -> None:
        failing, other = await bench.add(task="failing", priority=0), await bench.add(task="other")
        child = await bench.add(after=(failing, other))
        await dead(bench, failing)
        hand = bench.hand()
        assert await hand.drain() == [other]
        await bench.retry(failing)
        assert await hand.drain(1) == [failing, child]

    async def test_a_retry_revives_those_whose_other_parent_still_hands_its_result_on_to_very_many(
        self, bench: Bench
    ) -> None:
        failing = await bench.add(task="failing")
        await dead(bench, failing)
        other = await bench.add(task="other")
        await bench.add_many(600, after=(other,))
        child = await bench.add(after=(failing, other))
        assert await bench.states([child]) == [State.cancelled]
        hand = bench.hand()
        await hand.succeed(await hand.take())
        await bench.retry(failing)
        assert len(await hand.drain(64)) == 602
        assert await bench.states([failing, child]) == [State.succeeded] * 2

    async def test_a_revived_dependent_never_doubles_a_unique_key(self, bench: Bench) -> None:
        key, parent = Unique("k"), await bench.add(task="parent")
        child = await bench.add(after=(parent,), unique=key)
        await dead(bench, parent)
        holder = await bench.add(unique=key, delay_ms=60_000)
        await bench.retry(parent)
        await bench.hand().drain(1)
        assert await bench.state(holder) is State.scheduled
        assert await bench.state(child) is State.cancelled

    async def test_a_revived_dependent_holds_its_unique_key_again(self, bench: Bench) -> None:
        key, parent = Unique("k"), await bench.add(task="parent")
        child = await bench.add(after=(parent,), unique=key)
        await dead(bench, parent)
        await bench.retry(parent)
        assert (await bench.put(bench.job(unique=key)))[0].id == child

    async def test_a_revived_dependent_still_waits_for_its_other_parents(self, bench: Bench) -> None:
        failing, other = await bench.add(task="failing", priority=0), await bench.add(task="other", delay_ms=60_000)
        child = await bench.add(after=(failing, other))
        await dead(bench, failing)
        await bench.retry(failing)
        hand = bench.hand()
        assert await hand.drain(1) == [failing]
        assert await bench.state(child) is State.blocked
        bench.clock.advance(60_000)
        assert await hand.drain(1) == [other, child]

    async def test_a_dependent_of_two_dead_parents_waits_until_both_are_back(self, bench: Bench) -> None:
        one, two = await bench.add(task="one", priority=0), await bench.add(task="two", priority=1)
        child = await bench.add(after=(one, two))
        await dead(bench, one)
        await dead(bench, two)
        await bench.retry(one)
        hand = bench.hand()
        assert await hand.drain(1) == [one]
        assert await bench.state(child) is not State.ready
        await bench.retry(two)
        assert await hand.drain(1) == [two, child]
