"""Behaviours of forgetting: a person who retries a job says which of its recorded steps shall run again."""

from __future__ import annotations

import pytest

from limpet.core.jobs.lease import Claimed, Note, Signal
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import Hand

STEPS = {name: Note("step", name, b"1") for name in ("charge", "fetch", "send *")}
# Named as one of the steps, and none of them.
OTHERS = {
    Note("checkpoint", "fetch", b"2"),
    Note("log", "fetch", b"3"),
    Note("progress", "fetch", b"4"),
    Note("event", "fetch", b"5"),
}
DAY_MS = 86_400_000


async def noted(bench: Bench, hand: Hand) -> Claimed:
    """A running job with notes of every kind."""
    await bench.add()
    job = await hand.take()
    for note in (*STEPS.values(), *OTHERS):
        if note.kind != "event":
            assert await hand.save(job, note)
    assert await bench.signal(Signal(job.id, "fetch", b"5")) == ["kept"]
    return job


async def steps(bench: Bench, id: bytes) -> set[str]:
    """The steps that are still recorded; nothing else may be gone."""
    notes = set((await bench.view(id)).notes)
    assert {note for note in notes if note.kind != "step"} == OTHERS
    return {note.name for note in notes if note.kind == "step"}


@asynchronous
class TestForgetting:
    @pytest.mark.parametrize(
        ("forget", "left"),
        [
            ((), {"charge", "fetch", "send *"}),
            (("fetch",), {"charge", "send *"}),
            (("fetch", "send *"), {"charge"}),
            (("nothing", "fetch", "f*"), {"charge", "send *"}),
            (("*",), set()),
        ],
    )
    async def test_a_dead_job_forgets_the_steps_that_are_named(
        self, bench: Bench, forget: tuple[str, ...], left: set[str]
    ) -> None:
        hand = bench.hand()
        job = await noted(bench, hand)
        await hand.bury(job)
        assert await bench.retry(job.id, forget=forget) == ["retried"]
        assert await steps(bench, job.id) == left
        again = await hand.take()
        assert {note.name for note in again.notes if note.kind == "step"} == left

    async def test_a_sleeping_job_forgets_too(self, bench: Bench) -> None:
        hand = bench.hand()
        job = await noted(bench, hand)
        await hand.suspend(job, DAY_MS)
        assert await bench.retry(job.id, forget=("charge",)) == ["retried"]
        assert await steps(bench, job.id) == {"fetch", "send *"}

    async def test_a_job_that_is_not_retried_forgets_nothing(self, bench: Bench) -> None:
        hand = bench.hand()
        job = await noted(bench, hand)
        assert await bench.retry(job.id, forget=("*",)) == ["not_dead"]
        await hand.succeed(job)
        assert await bench.retry(job.id, forget=("*",)) == ["not_dead"]
        assert await steps(bench, job.id) == set(STEPS)

    async def test_every_job_named_forgets_and_no_other(self, bench: Bench) -> None:
        hand = bench.hand()
        jobs = [await noted(bench, hand) for _ in range(3)]
        await hand.end("bury", *jobs)
        one, two, other = (job.id for job in jobs)
        assert await bench.retry(one, bench.id(), two, forget=("fetch",)) == ["retried", "gone", "retried"]
        assert [await steps(bench, id) for id in (one, two)] == [{"charge", "send *"}] * 2
        assert await steps(bench, other) == set(STEPS)

    async def test_a_forgotten_step_is_recorded_anew(self, bench: Bench) -> None:
        hand = bench.hand()
        job = await noted(bench, hand)
        await hand.bury(job)
        await bench.retry(job.id, forget=("*",))
        job = await hand.take()
        assert await hand.save(job, Note("step", "fetch", b"9"))
        await hand.fail(job)
        assert [note for note in (await hand.take()).notes if note.kind == "step"] == [Note("step", "fetch", b"9")]
