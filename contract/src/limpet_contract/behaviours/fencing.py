"""Behaviours of fencing: a holder whose lease is gone changes not one byte, is told so, and is counted."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from limpet.core.gate import GateRule
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.jobs.state import State
from limpet.stores.asking import attempts_of
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench
from limpet_contract.hand import ENDINGS

LIMIT = "smtp"

# What became of the job while its first holder slept.
FATES = [
    "taken over",
    "waiting again",
    "retried later",
    "succeeded",
    "dead",
    "dropped",
    "cancelled by force",
    "reclaimed by itself",
]


async def snapshot(bench: Bench, id: bytes) -> tuple[object, ...]:
    """Everything that can be asked about the store, but for the count of refusals."""
    return (
        await bench.everything(),
        await attempts_of(bench.store, id),
        replace(await bench.store.count(), stale=0),
        await bench.store.gates(),
        await bench.store.causes(),
        await bench.store.held("late"),
        await bench.store.held("next"),
    )


async def overtaken(bench: Bench, fate: str) -> Claimed:
    """A job as its first holder still knows it; a neighbour keeps the rest of that lease alive."""
    late, other = bench.hand("late"), bench.hand("next")
    await bench.put(
        bench.job(limits=(LIMIT,), breaker="api", args=b'{"n":1}'),
        bench.job(task="neighbour"),
        rules=[GateRule(f"limit:{LIMIT}", concurrency=5)],
    )
    parent, _ = sorted(await late.claim(2), key=lambda job: job.id)
    await bench.add(task="child", after=(parent.id,))
    if fate == "retried later":
        await late.fail(parent, delay_ms=600_000)
    elif fate == "cancelled by force":
        await bench.cancel(parent.id, force=True)
    else:
        await late.release(parent)
    if fate in ("waiting again", "retried later", "cancelled by force"):
        return parent
    again = await (late if fate == "reclaimed by itself" else other).take()
    assert again.id == parent.id
    if fate == "succeeded":
        await other.succeed(again, result=b'"good"')
    elif fate == "dead":
        await other.bury(again)
    elif fate == "dropped":
        await other.drop(again)
    return parent


@asynchronous
class TestFencing:
    @pytest.mark.parametrize("fate", FATES)
    async def test_a_stale_token_changes_nothing_on_settle(self, bench: Bench, fate: str) -> None:
        job = await overtaken(bench, fate)
        refused = (await bench.store.count()).stale
        before = await snapshot(bench, job.id)
        for number, ending in enumerate(ENDINGS, 1):
            answer = (await bench.hand("late").settle(ENDINGS[ending](job)))[0]
            assert answer.answer == "stale", ending
            assert answer.state is await bench.state(job.id), ending
            assert await snapshot(bench, job.id) == before, ending
            assert (await bench.store.count()).stale == refused + number, ending

    @pytest.mark.parametrize("fate", FATES)
    async def test_a_stale_token_changes_nothing_on_save(self, bench: Bench, fate: str) -> None:
        job = await overtaken(bench, fate)
        before = await snapshot(bench, job.id)
        refused = (await bench.store.count()).stale
        assert not await bench.hand("late").save(job, Note("step", "charge", b"1"))
        assert await snapshot(bench, job.id) == before
        assert (await bench.store.count()).stale == refused + 1

    @pytest.mark.parametrize("fate", FATES)
    async def test_a_stale_token_changes_nothing_on_a_note_that_rides_on_a_beat(self, bench: Bench, fate: str) -> None:
        job = await overtaken(bench, fate)
        before = await snapshot(bench, job.id)
        await bench.hand("late").beat([(job.id, job.token, Note("progress", "", b"1"))])
        assert await snapshot(bench, job.id) == before

    async def test_a_token_that_was_never_given_changes_nothing(self, bench: Bench) -> None:
        await bench.add()
        job = await bench.hand("late").take()
        before = await snapshot(bench, job.id)
        for ending, make in ENDINGS.items():
            for wrong in (job.token + 1, job.token - 1, 0, -1):
                answer = (await bench.hand("late").settle(make(replace(job, token=wrong))))[0]
                assert answer.answer == "stale", (ending, wrong)
            assert await snapshot(bench, job.id) == before, ending

    async def test_a_sleeper_whose_lease_ran_out_changes_nothing(self, bench: Bench) -> None:
        id = await bench.add()
        late, other = bench.hand("late", ttl_ms=2_000), bench.hand("next")
        job = await late.take()
        await bench.lose(id, other)
        await other.take()
        before = await snapshot(bench, id)
        for number, ending in enumerate(ENDINGS, 1):
            assert (await late.end(ending, job))[0].answer == "stale", ending
            assert await snapshot(bench, id) == before, ending
            assert (await bench.store.count()).stale == number, ending

    async def test_a_late_beat_brings_no_lost_lease_back(self, bench: Bench) -> None:
        id = await bench.add()
        late, other = bench.hand("late", ttl_ms=2_000), bench.hand("next")
        job = await late.take()
        await bench.lose(id, other)
        assert (await late.beat()).fresh
        assert await bench.store.held("late") == []
        assert (await late.succeed(job))[0].answer == "stale"
        assert await bench.state(id) is State.ready

    async def test_a_job_that_is_not_stored_is_gone_not_stale(self, bench: Bench) -> None:
        await bench.add()
        hand = bench.hand("late")
        job = replace(await hand.take(), id=bench.id())
        for ending in ENDINGS:
            answer = (await hand.end(ending, job))[0]
            assert (answer.answer, answer.state) == ("gone", None)
