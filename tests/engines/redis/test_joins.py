"""Wide joins on Redis: a parent costs the same however many there are, and no step reads all of them at once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from holdfast.core.job import Job
from holdfast.core.lease import Claimed
from holdfast.core.state import State
from holdfast.core.transition import Bury, Succeed, Transition
from holdfast.core.view import Retention
from holdfast.stores.open import open_store
from holdfast.testing.bench import Bench
from holdfast.testing.hand import Hand, failure
from holdfast.testing.harness import Clock
from tests.engines.redis.audit import faults
from tests.servers.redis import RedisServer, shared

FEW, MANY = 300, 3_000  # parents

_number = count()

Ending = Callable[[Claimed], Transition]


class Place(Bench):
    """A bench on a namespace of its own that counts what the server does."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.namespace = f"joins-{next(_number)}"
        super().__init__(open_store(server.url, self.namespace), Clock())

    def key(self, name: bytes) -> bytes:
        return f"{{hf:{self.namespace}}}:".encode() + name

    def reset(self) -> None:
        self.server.ask("CONFIG", "RESETSTAT")

    def commands(self, name: str = r"\S+?") -> int:
        """Commands that the server has run since `reset`, within scripts too."""
        text = self.server.ask("INFO", "commandstats").decode()
        return sum(int(n) for n in re.findall(rf"^cmdstat_{name}:calls=(\d+)", text, re.MULTILINE))

    def sound(self) -> bool:
        found = faults(self.server, self.namespace)
        assert not found, found[:5]
        return True

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
async def place() -> AsyncIterator[Place]:
    place = Place(shared("redis-6.2"))
    yield place
    await place.store.close()


async def test_a_parent_is_enqueued_and_ends_at_a_cost_of_its_own(place: Place) -> None:
    hand = place.hand()
    await place.join(1)
    await place.end_all(hand, lambda job: Succeed(job.id, job.token, b"1"))  # the server knows the scripts
    costs: dict[int, list[float]] = {}
    for parents in (FEW, MANY):
        place.reset()
        await place.join(parents)
        enqueued = place.commands() / parents
        last = await place.end_all_but_one(hand, parents)
        place.reset()
        await hand.succeed(last, result=b"2")
        costs[parents] = [enqueued, place.commands()]
        assert len((await hand.take()).inputs) == parents
        assert place.sound()
    assert costs[MANY][0] <= costs[FEW][0] < 6
    assert costs[MANY][1] <= costs[FEW][1] < 70


async def test_nobody_reads_or_writes_all_parents_when_one_ends(place: Place) -> None:
    child = await place.join(MANY)
    assert place.server.ask("HSTRLEN", place.key(b"J"), child.id) < 200
    hand = place.hand()
    last = await place.end_all_but_one(hand, MANY)
    place.reset()
    await hand.succeed(last)
    assert place.commands("hgetall") == 0


async def test_inputs_of_very_many_are_read_a_part_at_a_time(place: Place) -> None:
    await place.join(MANY)
    hand = place.hand()
    last = await place.end_all_but_one(hand, MANY)
    await hand.succeed(last, result=b"2")
    place.reset()
    claim = await hand.ask(seq=1 << 40)
    (job,) = claim.jobs
    assert len(job.inputs) == len(job.after) == MANY
    assert place.commands("hgetall") == 0
    assert place.commands("hscan") >= MANY // 512
    assert (await hand.ask(seq=1 << 40)).jobs == claim.jobs


async def test_parents_that_die_one_after_another_cost_the_same_each(place: Place) -> None:
    costs = []
    for parents in (FEW, MANY):
        child = await place.join(parents)
        hand = place.hand()
        jobs = await hand.claim(100)
        await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs[:50]))
        assert await place.state(child.id) is State.cancelled
        place.reset()
        await hand.settle(*(Bury(job.id, job.token, failure()) for job in jobs[50:]))
        costs.append(place.commands())
        await place.end_all(hand, lambda job: Succeed(job.id, job.token))
    assert costs[1] <= costs[0]
    assert place.sound()


async def test_very_many_dead_parents_are_brought_back_without_a_look_at_all_for_each(place: Place) -> None:
    child = await place.join(MANY)
    hand = place.hand()
    await place.end_all(hand, lambda job: Bury(job.id, job.token, failure()))
    assert await place.state(child.id) is State.cancelled
    ids = [job.id for job in await place.everything() if job.id != child.id]
    for some, state in ((ids[:-1], State.cancelled), (ids[-1:], State.blocked)):  # one is still dead; none is
        assert await place.retry(*some) == ["retried"] * len(some)
        for _ in range(20):
            await place.store.expire(now_ms=place.clock.now_ms)  # what was left over
        assert place.server.ask("EXISTS", place.key(b"fan")) == 0
        assert await place.state(child.id) is state
    await place.end_all(hand, lambda job: Succeed(job.id, job.token, b"1"))
    assert await place.state(child.id) is State.succeeded
    assert place.sound()


async def test_who_was_dead_once_keeps_nobody_dead(place: Place) -> None:
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


async def test_a_job_that_goes_before_its_parents_is_on_no_list_of_theirs(place: Place) -> None:
    child = await place.join(FEW)
    await place.cancel(child.id)
    await place.store.prune(Retention(cancelled_ms=0), now_ms=place.clock.now_ms)
    assert await place.states([child.id]) == [None]
    assert place.sound()
