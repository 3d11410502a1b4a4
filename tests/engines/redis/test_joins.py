"""Wide joins on Redis: a parent costs the same however many there are, and no step reads all of them at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from limpet.core.endings.transition import Bury, Succeed, Transition
from limpet.core.jobs.job import Job
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Retention
from limpet_contract.hand import Hand, failure
from tests.engines.redis.place import Place

FEW, MANY = 300, 3_000  # parents

Ending = Callable[[Claimed], Transition]


class Join(Place):
    """A place of jobs that wait for many."""

    async def join(self, parents: int) -> Job:
        """A job that waits for so many others, all of which are new."""
        jobs = [self.job() for _ in range(parents)]
        child = self.job(task="join", after=tuple(job.id for job in jobs))
        await self.put(*jobs, child)
        return child

    async def end_all(self, hand: Hand, ending: Ending) -> None:
        while jobs := await hand.claim(100):
            await hand.settle(*map(ending, jobs))

    async def end_all_but_one(self, hand: Hand, count: int) -> Claimed:
        """All parents but one succeed; the one, which runs."""
        last = await hand.take()
        for _ in range((count - 1) // 100 + 1):
            await hand.settle(*(Succeed(job.id, job.token, b"1") for job in await hand.claim(100)))
        return last


@pytest.fixture
async def place() -> AsyncIterator[Join]:
    place = Join()
    yield place
    await place.store.close()


async def test_a_parent_is_enqueued_and_ends_at_a_cost_of_its_own(place: Join) -> None:
    hand = place.hand()
    await place.join(1)
    await place.end_all(hand, lambda job: Succeed(job.id, job.token, b"1"))  # the server knows the scripts
    costs: dict[int, list[float]] = {}
    for parents in (FEW, MANY):
        place.reset()
        await place.join(parents)
        enqueued = place.commands().total() / parents
        last = await place.end_all_but_one(hand, parents)
        place.reset()
        await hand.succeed(last, result=b"2")
        costs[parents] = [enqueued, place.commands().total()]
        assert len((await hand.take()).inputs) == parents
        assert place.sound()
    assert costs[MANY][0] <= costs[FEW][0] < 6
    assert costs[MANY][1] <= costs[FEW][1] < 70


async def test_nobody_reads_or_writes_all_parents_when_one_ends(place: Join) -> None:
    child = await place.join(MANY)
    assert place.server.ask("HSTRLEN", place.key("J"), child.id) < 200
    hand = place.hand()
    last = await place.end_all_but_one(hand, MANY)
    place.reset()
    await hand.succeed(last)
    assert place.commands()["hgetall"] == 0


async def test_inputs_of_very_many_are_read_a_part_at_a_time(place: Join) -> None:
    await place.join(MANY)
    hand = place.hand()
    last = await place.end_all_but_one(hand, MANY)
    await hand.succeed(last, result=b"2")
    place.reset()
    claim = await hand.ask(seq=1 << 40)
    (job,) = claim.jobs
    assert len(job.inputs) == len(job.after) == MANY
    assert place.commands()["hgetall"] == 0
    assert place.commands()["hscan"] >= MANY // 512
    assert (await hand.ask(seq=1 << 40)).jobs == claim.jobs


async def test_parents_that_die_one_after_another_cost_the_same_each(place: Join) -> None:
    costs = []
    for parents in (FEW, MANY):
        child = await place.join(parents)
        hand = place.hand()
        jobs = await hand.claim(100)
        await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs[:50]))
        assert await place.state(child.id) is State.cancelled
        place.reset()
        await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs[50:]))
        costs.append(place.commands().total())
        await place.end_all(hand, lambda job: Succeed(job.id, job.token))
    assert costs[1] <= costs[0]
    assert place.sound()


async def test_very_many_dead_parents_are_brought_back_without_a_look_at_all_for_each(place: Join) -> None:
    child = await place.join(MANY)
    hand = place.hand()
    await place.end_all(hand, lambda job: Bury(job.id, job.token, failure()))
    assert await place.state(child.id) is State.cancelled
    ids = [job.id for job in await place.everything() if job.id != child.id]
    for some, state in ((ids[:-1], State.cancelled), (ids[-1:], State.blocked)):  # one is still dead; none is
        assert await place.retry(*some) == ["retried"] * len(some)
        for _ in range(20):
            await place.store.expire(now_ms=place.clock.now_ms)  # what was left over
        assert place.server.ask("EXISTS", place.key("fan")) == 0
        assert await place.state(child.id) is state
    await place.end_all(hand, lambda job: Succeed(job.id, job.token, b"1"))
    assert await place.state(child.id) is State.succeeded
    assert place.sound()


async def test_who_was_dead_once_keeps_nobody_dead(place: Join) -> None:
    hand = place.hand()
    one, two = await place.add(priority=0), await place.add(priority=1)
    three = await place.add(delay_ms=60_000)
    child = await place.add(after=(one, two, three))
    for id in (one, two):
        job = await hand.take()
        assert job.id == id
        await hand.bury(job)
    await place.retry(one)
    assert await place.state(child) is State.cancelled, "the other one is dead"
    await place.retry(two)
    assert await place.state(child) is State.blocked
    first, second = await hand.claim(2)
    await hand.succeed(second)
    await hand.bury(first)
    assert await place.state(child) is State.cancelled
    await place.retry(one)
    assert await place.state(child) is State.blocked
    assert place.sound()


async def test_a_job_that_goes_before_its_parents_is_on_no_list_of_theirs(place: Join) -> None:
    child = await place.join(FEW)
    await place.cancel(child.id)
    await place.store.prune(Retention(cancelled_ms=0), now_ms=place.clock.now_ms)
    assert await place.states([child.id]) == [None]
    assert place.sound()
