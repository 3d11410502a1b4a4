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
from limpet.runtime import current_job
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
        self.asked, self.go_on, self.hold_answers = asyncio.Event(), asyncio.Event(), False
        self.served: list[tuple[str, ...] | None] = []
        self.empty = asyncio.Event()  # the last claim found nothing

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
        if bad and self.hold_answers:  # before the engine hears of it: a claim may still get a job under that gate
            self.hold_answers = False
            self.asked.set()
            await self.go_on.wait()
        answers = await super().settle(session, seq, transitions, spent=spent, now_ms=now_ms)
        if bad:
            self.settling.set()
            await self.answer.wait()
        return answers

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        self.served.append(request.serves.tasks)
        self.empty.clear()
        claim = await super().claim(request, now_ms=now_ms)
        if not claim.jobs:
            self.empty.set()
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


@pytest.mark.parametrize("slots", [1, 10])
async def test_until_the_answer_nothing_starts_under_the_key_and_other_keys_go_on(store: Slow, slots: int) -> None:
    bench, ran, fine, again = Bench(store), list[str](), asyncio.Event(), asyncio.Event()

    async def hook(customer: str) -> None:
        ran.append(customer)
        if customer != "down":
            if ran.count(customer) == 20:
                fine.set()
            return
        if ran.count("down") == 2:
            again.set()
        raise ConnectionError("down")

    spec = bench.task(hook, breaker=Breaker("hook:{customer}", failures=5, cooldown=HOUR_S))
    await bench.put(spec, {"customer": "down"})
    worker = asyncio.create_task(bench.worker({"concurrency": slots}).run())
    await soon(store.settling)
    for customer in [*["down"] * slots, *["fine"] * 20]:
        await bench.put(spec, {"customer": customer})
    await soon(fine)
    assert ran.count("down") == 1
    store.answer.set()
    await soon(again)
    worker.cancel()
    await asyncio.wait({worker})


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


SELDOM = {"concurrency": 2, "beat_ms": 600_000, "ttl_ms": 1_800_000}  # no regular wait ends within a test


async def test_a_job_that_lay_aside_starts_when_its_gate_stays_open(store: Slow) -> None:
    bench, second, tokens = Bench(store), asyncio.Event(), list[int]()

    async def calls(n: int) -> None:
        if n:
            tokens.append(current_job().token)
            second.set()
            return
        raise ConnectionError("down")

    spec = bench.task(calls, breaker=Breaker(failures=5, cooldown=HOUR_S))
    await bench.put(spec, {"n": 0})
    worker = bench.worker(SELDOM)
    working = asyncio.create_task(worker.run())
    await soon(store.settling)
    aside = await bench.put(spec, {"n": 1})
    await bench.until([aside], State.running)  # claimed, and held back
    await soon(store.empty)
    held = {one.id: one.token for one in await store.held(worker.session)}
    assert not second.is_set()
    store.answer.set()
    await soon(second)
    working.cancel()
    await asyncio.wait({working})
    assert tokens == [held[aside]]  # under the lease it had: it was not handed back and claimed again


async def test_a_success_of_an_earlier_write_lets_no_job_pass_a_failure(store: Slow) -> None:
    bench, ran, third = Bench(store), list[int](), asyncio.Event()

    async def calls(n: int) -> None:
        ran.append(n)
        if n == 1:
            raise ConnectionError("down")
        if n == 2:
            third.set()

    spec = bench.task(calls, breaker=Breaker(failures=5, cooldown=HOUR_S))
    first = await bench.put(spec, {"n": 0})
    worker = asyncio.create_task(bench.worker(SELDOM).run())
    await bench.until([first], State.succeeded)  # in a write of its own
    await bench.put(spec, {"n": 1})
    await soon(store.settling)
    aside = await bench.put(spec, {"n": 2})
    await bench.until([aside], State.running)  # claimed, and held back
    await soon(store.empty)
    assert ran == [0, 1]
    store.answer.set()
    await soon(third)
    worker.cancel()
    await asyncio.wait({worker})


async def test_a_job_that_lay_aside_is_handed_back_when_its_gate_is_shut(store: Slow) -> None:
    bench, ran = Bench(store), list[int]()

    async def calls(n: int) -> None:
        ran.append(n)
        raise RateLimited(HOUR_S)

    spec = bench.task(calls)
    store.hold_answers = True
    await bench.put(spec, {"n": 0})
    worker = asyncio.create_task(bench.worker(SELDOM).run())
    await soon(store.asked)
    aside = await bench.put(spec, {"n": 1})
    await bench.until([aside], State.running)
    store.go_on.set()
    await soon(store.settling)
    store.answer.set()
    await bench.until([aside], State.ready)
    worker.cancel()
    await asyncio.wait({worker})
    assert ran == [0]
    assert (await bench.view(aside)).attempt == 0


async def test_after_the_answer_jobs_are_asked_for_that_a_narrowed_claim_had_left_out(store: Slow) -> None:
    bench, ran, third = Bench(store), list[int](), asyncio.Event()

    async def calls(n: int) -> None:
        ran.append(n)
        if n == 0:
            raise ConnectionError("down")
        if n == 2:
            third.set()

    async def other() -> None: ...

    spec = bench.task(calls, breaker=Breaker(failures=5, cooldown=HOUR_S))
    quick = bench.task(other)
    await bench.put(spec, {"n": 0})
    worker = asyncio.create_task(bench.worker(SELDOM).run())
    await soon(store.settling)
    await bench.until([await bench.put(spec, {"n": 1})], State.running)
    while store.served[-1] != ("other",):  # it has waited for too long: its slot is offered to other tasks
        await bench.until([await bench.put(quick)], State.running)
    await soon(store.empty)
    await bench.put(spec, {"n": 2})  # the worker is not woken for it: it has asked for other tasks alone
    store.answer.set()
    await soon(third)
    worker.cancel()
    await asyncio.wait({worker})
    assert ran == [0, 1, 2]
