"""From the end of a handler whose outcome may shut a gate, its worker starts nothing there until the store answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from limpet.core.endings.signals import RateLimited
from limpet.core.endings.transition import Settled, Succeed, Transition
from limpet.core.jobs.lease import Claim, ClaimRequest
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Breaker, Limit
from limpet.stores.base import NOTHING_SPENT
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench

HOUR_S = 3_600


class Slow(SqliteStore):
    """The real engine, in memory; answers settlements, and one claim, when the test says so."""

    def __init__(self) -> None:
        super().__init__(None)
        self.settling, self.answer = asyncio.Event(), asyncio.Event()
        self.claimed, self.hand_out = asyncio.Event(), asyncio.Event()
        self.hand_out.set()

    async def settle(
        self,
        session: str,
        seq: int,
        transitions: Sequence[Transition],
        *,
        spent: Mapping[bytes, Mapping[str, int]] = NOTHING_SPENT,
        now_ms: int | None = None,
    ) -> list[Settled]:
        bad = any(not isinstance(each, Succeed) for each in transitions)
        answers = await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)
        if bad:
            self.settling.set()
            await self.answer.wait()
        return answers

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        claim = await super().claim(request, now_ms=now_ms)
        if claim.jobs and not self.hand_out.is_set():
            self.claimed.set()
            await self.hand_out.wait()
        return claim


@pytest.fixture
async def store() -> AsyncIterator[Slow]:
    store = Slow()
    yield store
    await store.close()


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 60)


async def test_until_the_answer_nothing_starts_there_and_all_else_does(store: Slow) -> None:
    bench, ran = Bench(store), list[str]()
    enough = {"down": asyncio.Event(), "fine": asyncio.Event(), "limited": asyncio.Event()}

    def note(name: str, count: int) -> None:
        ran.append(name)
        if ran.count(name) % count == 0:
            enough[name].set()

    async def down() -> None:
        note("down", 5)
        raise ConnectionError("down")

    async def fine() -> None:
        note("fine", 20)

    async def limited() -> None:
        note("limited", 5)

    bad = bench.task(down, breaker=Breaker(failures=5, cooldown=HOUR_S))
    good, other = bench.task(fine), bench.task(limited, limits=[Limit("other", concurrency=5)])
    await bench.put(bad)
    worker = asyncio.create_task(bench.worker({"concurrency": 2}).run())
    await soon(store.settling)
    for _ in range(5):
        await bench.put(bad)
        await bench.put(bad)
        await bench.put(other)
    for _ in range(20):
        await bench.put(good)
    await soon(enough["fine"])
    await soon(enough["limited"])
    assert ran.count("down") == 1
    store.answer.set()
    await soon(enough["down"])
    enough["fine"].clear()
    for _ in range(20):
        await bench.put(good)
    await soon(enough["fine"])
    worker.cancel()
    await asyncio.wait({worker})
    assert ran.count("down") in (5, 6), "of two at once the other may have started before one opened the breaker"


async def test_what_a_claim_brings_that_was_sent_before_the_answer_is_given_back(store: Slow) -> None:
    bench, ran, begun = Bench(store), list[int](), asyncio.Event()

    async def calls(n: int) -> None:
        ran.append(n)
        begun.set()
        await asyncio.wait_for(store.claimed.wait(), 60)  # the other place is asked for, and its job is on its way
        raise RateLimited(HOUR_S)

    spec = bench.task(calls)
    ids = [await bench.put(spec, {"n": 0})]
    worker = asyncio.create_task(bench.worker({"concurrency": 2}).run())
    await soon(begun)
    store.hand_out.clear()
    ids.append(await bench.put(spec, {"n": 1}))
    await soon(store.settling)
    store.answer.set()
    await bench.until(ids[:1], State.ready)
    store.hand_out.set()
    await bench.until(ids, State.ready)
    worker.cancel()
    await asyncio.wait({worker})
    assert ran == [0]
    assert (await bench.view(ids[1])).attempt == 0


async def test_a_failure_that_cannot_open_its_breaker_stops_nothing(store: Slow) -> None:
    bench, ran, done = Bench(store), list[int](), asyncio.Event()

    async def calls(n: int) -> None:
        ran.append(n)
        if n == 1:
            raise ConnectionError("once in a while")
        if n == 9:
            done.set()

    spec = bench.task(calls, breaker=Breaker(failures=3, cooldown=HOUR_S))
    for n in range(10):
        await bench.put(spec, {"n": n})
    worker = asyncio.create_task(bench.worker({"concurrency": 2}).run())
    await soon(done)  # though nobody has answered the failure
    assert not store.answer.is_set()
    store.answer.set()
    worker.cancel()
    await asyncio.wait({worker})
    assert ran == list(range(10))
