"""Behaviours of wide joins: one job that waits for thousands of others gets what each of them left."""

from __future__ import annotations

from itertools import pairwise

import pytest

from limpet.core.jobs.lease import Input
from limpet.core.jobs.state import State
from limpet_contract.behaviours.marks import asynchronous
from limpet_contract.bench import Bench

WIDE = 3_000


@asynchronous
class TestWideJoins:
    @pytest.mark.parametrize("together", [True, False])
    async def test_a_job_runs_after_the_last_of_thousands_with_all_their_results(
        self, bench: Bench, together: bool
    ) -> None:
        parents = [bench.job() for _ in range(WIDE)]
        child = bench.job(task="join", after=tuple(job.id for job in parents))
        if together:
            answers = await bench.put(*parents, child)
        else:
            await bench.put(*parents)
            answers = await bench.put(child)
        assert answers[-1].state is State.blocked
        assert (await bench.view(child.id)).after == child.after
        hand = bench.hand()
        left = WIDE
        while left:
            jobs = await hand.claim(500)
            assert child.id not in {job.id for job in jobs}
            for job in jobs[:3]:
                await hand.succeed(job, result=job.id.hex().join('""').encode())
            await hand.succeed(*jobs[3:], result=b"1")
            left -= len(jobs)
        job = await hand.take()
        assert job.id == child.id
        assert job.inputs.keys() == set(child.after)
        own = {id: given for id, given in job.inputs.items() if given != Input(b"1")}
        assert own == {id: Input(id.hex().join('""').encode()) for id in own}
        assert len(own) == 3 * WIDE // 500
        await hand.fail(job)
        assert (await hand.take()).inputs == job.inputs

    async def test_one_of_thousands_that_fails_is_enough(self, bench: Bench) -> None:
        parents = [bench.job() for _ in range(WIDE)]
        child = bench.job(task="join", after=tuple(job.id for job in parents))
        await bench.put(*parents, child)
        hand = bench.hand()
        await hand.bury(await hand.take())
        assert await bench.state(child.id) is State.cancelled
        assert await bench.retry(parents[0].id) == ["retried"]
        assert await bench.state(child.id) is State.blocked
        assert len(await hand.drain(500)) == WIDE + 1

    async def test_layers_of_joins_run_in_order(self, bench: Bench) -> None:
        layers = [[bench.job()]]
        for width in (40, 1, 40, 40, 1):
            after = tuple(job.id for job in layers[-1])
            layers.append([bench.job(after=after) for _ in range(width)])
        await bench.put(*(job for layer in layers[::-1] for job in layer))
        done = await bench.hand().drain(64)
        place = {id: number for number, id in enumerate(done)}
        assert len(done) == sum(map(len, layers))
        for before, behind in pairwise(layers):
            assert max(place[job.id] for job in before) < min(place[job.id] for job in behind)
