"""Wide flows finish on every engine: chords of thousands, chords of chains, cascades and replays through them."""

from __future__ import annotations

from typing import Any

import pytest

from limpet import Dead, JobCancelled, Limpet, State, chain, chord
from tests.size import FULL

WIDE = 10_000 if FULL else 1_000

pytestmark = pytest.mark.timeout(600)


class Tasks:
    """The tasks of these tests on one app; what is in `bad` dies."""

    def __init__(self, app: Limpet) -> None:
        self.bad: set[int] = set()

        @app.task(name="number", retry=1)
        async def number(n: int) -> int:
            if n in self.bad:
                raise Dead(f"{n} is bad")
            return n

        @app.task(name="add", retry=1)
        async def add(n: int, more: int = 1) -> int:
            return n + more

        @app.task(name="total", retry=1)
        async def total(numbers: list[Any]) -> list[Any]:
            return [len(numbers), sum(numbers), numbers[0], numbers[-1]]

        self.number, self.add, self.total = number, add, total


def test_a_wide_chord_finishes_with_all_results_in_order(app: Limpet) -> None:
    tasks = Tasks(app)

    async def whole() -> None:
        job = await chord([tasks.number.job(n) for n in range(WIDE)], tasks.total.job()).enqueue()
        status = await job.flow.status()
        assert (status.total, status.counts) == (WIDE + 1, {State.ready: WIDE, State.blocked: 1})
        await app.work(until_empty=True)
        assert await job.result() == [WIDE, sum(range(WIDE)), 0, WIDE - 1]
        assert (await job.flow.wait()).counts == {State.succeeded: WIDE + 1}

    app.run(whole())


def test_a_chord_of_chains_finishes(app: Limpet) -> None:
    tasks, many = Tasks(app), WIDE // 5

    async def whole() -> None:
        chains = [chain(tasks.number.job(n), tasks.add.job(), tasks.add.job(2)) for n in range(many)]
        job = await chain(chord(chains, tasks.total.job()), tasks.total.job()).enqueue()
        await app.work(until_empty=True)
        first = [many, sum(range(many)) + 3 * many, 3, many + 2]
        assert await job.result() == [4, sum(first), first[0], first[-1]]

    app.run(whole())


def test_one_job_may_fan_out_to_thousands_and_its_death_takes_them_down(app: Limpet) -> None:
    tasks = Tasks(app)
    tasks.bad = {7}

    async def whole() -> None:
        fan = [tasks.add.job(n) for n in range(WIDE)]
        job = await chain(tasks.number.job(7), chord(fan, tasks.total.job())).enqueue()
        await app.work(until_empty=True)
        assert (await job.flow.wait(30)).counts == {State.dead: 1, State.cancelled: WIDE + 1}
        with pytest.raises(JobCancelled, match=r"parent .* is cancelled: 7 is bad"):
            await job.result()
        tasks.bad.clear()
        assert await job.flow.retry() == 1
        await app.work(until_empty=True)
        assert await job.result() == [WIDE, sum(range(WIDE)) + 7 * WIDE, 7, WIDE + 6]
        assert (await job.flow.wait(30)).state == "succeeded"

    app.run(whole())


def test_a_wide_flow_is_cancelled_and_run_again(app: Limpet) -> None:
    tasks = Tasks(app)

    async def whole() -> None:
        job = await chord([tasks.number.job(n) for n in range(WIDE)], tasks.total.job()).enqueue()
        assert await job.flow.cancel("not today") == WIDE + 1
        status = await job.flow.status()
        assert (status.state, {node.reason for node in status.nodes}) == ("cancelled", {"not today"})
        names = [node.node for node in status.nodes]
        assert await job.flow.retry(names) == WIDE + 1
        await app.work(until_empty=True)
        assert await job.flow.result() == [WIDE, sum(range(WIDE)), 0, WIDE - 1]

    app.run(whole())
