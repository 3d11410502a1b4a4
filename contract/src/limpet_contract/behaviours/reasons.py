"""Behaviours of reasons: a job that is cancelled with a parent records how the parent ended, and why."""

from __future__ import annotations

from limpet.core.endings.transition import Bury, Failure
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Input
from limpet.core.jobs.state import State
from limpet_contract.behaviours.dead import dead
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench


@asynchronous
class TestReasons:
    async def test_each_level_of_a_cascade_is_told_what_became_of_its_parent_and_why(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        anyway = await bench.add(after=(parent,), if_parent_fails="run")
        await bench.cancel(parent, reason="wrong customer")
        told = f"parent {id_text(parent)} is cancelled: wrong customer"
        assert (await bench.view(child)).reason == told
        assert (await bench.view(grandchild)).reason == f"parent {id_text(child)} is cancelled: wrong customer"
        claimed = await bench.hand().take()
        assert (claimed.id, claimed.inputs) == (anyway, {parent: Input(failed=told)})

    async def test_dependents_of_a_dead_job_are_told_its_error(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        hand = bench.hand()
        await hand.bury(await hand.take(), message="no such host")
        assert (await bench.view(child)).reason == f"parent {id_text(parent)} is dead: no such host"
        assert (await bench.view(grandchild)).reason == f"parent {id_text(child)} is cancelled: no such host"
        late = await bench.add(after=(parent,))
        anyway = await bench.add(after=(parent,), if_parent_fails="run")
        assert (await bench.view(late)).reason == f"parent {id_text(parent)} is dead: no such host"
        claimed = await hand.take()
        assert claimed.id == anyway
        assert claimed.inputs[parent].failed == f"parent {id_text(parent)} is dead: no such host"

    async def test_parents_that_die_together_each_say_their_own_error(self, bench: Bench) -> None:
        parents = await bench.add_many(3)
        children = [await bench.add(after=(parent,)) for parent in parents]
        hand = bench.hand()
        await hand.settle(
            *(
                Bury(job.id, job.token, Failure("permanent", "E", f"error {parents.index(job.id)}"))
                for job in await hand.claim(3)
            )
        )
        for number, (parent, child) in enumerate(zip(parents, children, strict=True)):
            assert (await bench.view(child)).reason == f"parent {id_text(parent)} is dead: error {number}"

    async def test_dependents_of_a_running_job_are_told_that_it_was_asked_to_stop(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        grandchild = await bench.add(after=(child,))
        await bench.hand().take()
        await bench.cancel(parent, reason="too late")
        told = f"parent {id_text(parent)} was asked to stop: too late"
        assert (await bench.view(child)).reason == told
        assert (await bench.view(grandchild)).reason == f"parent {id_text(child)} is cancelled: {told}"

    async def test_a_job_that_cancels_itself_says_why(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        hand = bench.hand()
        await hand.drop(await hand.take(), "pointless")
        assert (await bench.view(child)).reason == f"parent {id_text(parent)} is cancelled: pointless"

    async def test_without_a_reason_there_is_none(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        await bench.cancel(parent, reason="")
        assert (await bench.view(child)).reason == f"parent {id_text(parent)} is cancelled"

    async def test_a_long_reason_is_cut(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        await bench.cancel(parent, reason="é" * 1_000)
        assert (await bench.view(child)).reason == f"parent {id_text(parent)} is cancelled: {'é' * 200}"

    async def test_what_a_death_cancelled_comes_back_without_its_reason(self, bench: Bench) -> None:
        parent = await bench.add()
        child = await bench.add(after=(parent,))
        late_parent = await bench.add(delay_ms=60_000)
        await dead(bench, parent)
        late = await bench.add(after=(parent, late_parent))
        await bench.retry(parent)
        assert [(await bench.view(id)).reason for id in (child, late)] == ["", ""]
        assert await bench.states([child, late]) == [State.blocked] * 2
