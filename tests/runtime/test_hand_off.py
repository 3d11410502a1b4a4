"""Jobs that come with a wake-up: they start at once; those that did not arrive, came late or found no place go back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from limpet.core.jobs.lease import Beat, Claim, ClaimRequest, Held, Pulse, Takes, Wake
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Limit
from limpet.runtime import Worker
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench

QUIET = {"beat_ms": 60_000, "ttl_ms": 180_000}  # no wait and no beat ends by itself within a test


class Post(SqliteStore):
    """The real engine, in memory. Tells when a worker lies down, and loses or keeps the jobs of wake-ups if told so."""

    def __init__(self) -> None:
        super().__init__(None)
        self.asleep = asyncio.Event()
        self.claims: list[ClaimRequest] = []
        self.came: list[int] = []
        self.loses: set[int] = set()  # which of the jobs that come, from 0
        self.kept: list[Wake] = []
        self.lost = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.claiming: Callable[[], Any] | None = None

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        self.claims.append(request)
        if self.claiming is not None:
            await self.claiming()
        claim = await super().claim(request, now_ms=now_ms)
        if not claim.jobs and request.limit and request.options.takes_all:
            self.asleep.set()
        return claim

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        wake = await super().wait(session, timeout_ms)
        if not wake.jobs:
            return wake
        numbers = range(len(self.came), len(self.came) + len(wake.jobs))
        self.came += [handed.number for handed in wake.jobs]
        lost = [handed for number, handed in zip(numbers, wake.jobs, strict=True) if number in self.loses]
        self.kept += [Wake(jobs=(handed,)) for handed in lost]
        if lost:
            self.lost.set()
        return Wake(wake.work, wake.urgent, wake.cancel, tuple(each for each in wake.jobs if each not in lost))

    async def held(self, session: str) -> list[Held]:
        self.calls["held"] += 1
        return await super().held(session)

    async def beat(self, beat: Beat, *, now_ms: int | None = None) -> Pulse:
        self.calls["beat"] += 1
        return await super().beat(beat, now_ms=now_ms)


@pytest.fixture
async def post() -> Any:
    store = Post()
    yield store
    await store.close()


class Working:
    """A worker under way."""

    def __init__(self, post: Post, bench: Bench, **settings: Any) -> None:
        self.post = post
        self.worker: Worker = bench.worker({**QUIET, **settings})
        self.stop = asyncio.Event()

    async def __aenter__(self) -> Working:
        self.task = asyncio.create_task(self.worker.run(self.stop))
        await self.post.asleep.wait()
        self.takes = self.post.claims[-1].takes
        self.post.claims.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await self.task

    def beat(self) -> None:
        run = self.worker._run
        assert run is not None
        run._keeper.beat_now()


async def test_a_lone_job_takes_an_enqueue_and_a_settlement_and_nothing_else(post: Post) -> None:
    bench, ran = Bench(post), []

    async def work() -> None:
        ran.append(1)

    task = bench.task(work)
    async with Working(post, bench):
        for _ in range(5):
            await bench.until([await bench.put(task)], State.succeeded)
        assert len(ran) == 5
        assert post.claims == []
        assert post.calls["held"] == 0


async def test_a_worker_with_one_place_asks_again_once_that_is_free(post: Post) -> None:
    bench, go_on, started = Bench(post), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        await go_on.wait()

    task = bench.task(work)
    async with Working(post, bench, concurrency=1):
        first = await bench.put(task)
        await started.wait()
        second = await bench.put(task)
        assert (await bench.view(second)).state is State.ready
        assert post.claims == []
        go_on.set()
        await bench.until([first, second], State.succeeded)


async def test_a_job_whose_message_was_lost_goes_back_with_the_next_beat(post: Post) -> None:
    bench, ran = Bench(post), []

    async def work() -> None:
        ran.append(1)

    task = bench.task(work)
    post.loses = {0}
    async with Working(post, bench) as working:
        id = await bench.put(task)
        await post.lost.wait()
        assert (await bench.view(id)).state is State.running
        working.beat()
        await bench.until([id], State.succeeded)
    assert ran == [1]
    assert (await bench.view(id)).attempt == 1


async def test_a_gap_in_the_numbers_is_a_reason_to_beat_at_once(post: Post) -> None:
    bench, ran = Bench(post), []

    async def work() -> None:
        ran.append(1)

    task = bench.task(work)
    post.loses = {0}
    async with Working(post, bench):
        ids = [await bench.put(task) for _ in range(2)]
        await bench.until(ids, State.succeeded)
    assert len(ran) == 2


async def test_a_message_that_comes_after_its_job_went_back_is_dropped(post: Post) -> None:
    bench, ran = Bench(post), []

    async def work() -> None:
        ran.append(1)

    task = bench.task(work)
    post.loses = {0}
    async with Working(post, bench) as working:
        id = await bench.put(task)
        await post.lost.wait()
        working.beat()
        await bench.until([id], State.succeeded)
        run = working.worker._run
        assert run is not None
        run._listener._take(post.kept[0])
        second = await bench.put(task)
        await bench.until([second], State.succeeded)
    assert len(ran) == 2


async def test_a_job_that_comes_while_the_worker_ends_goes_back_unspent(post: Post) -> None:
    bench, go_on, started, ended = Bench(post), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await go_on.wait()

    async def work() -> None:
        raise AssertionError("it runs in a worker that ends")

    long, task = bench.task(slow), bench.task(work)
    working = Working(post, bench)
    async with working:
        await bench.put(long)
        await started.wait()

        async def leaving() -> None:
            if post.claims[-1].claimer == "leaving":
                ended.set()
                await bench.put(task)  # in the very moment in which it says that it sleeps no more

        post.claiming = leaving
        working.stop.set()
        await ended.wait()
        late = await bench.put(task)
        await bench.until([late], State.ready)
        go_on.set()
    jobs = await bench.claim_as("other")
    assert [(job.attempt, job.lost) for job in jobs] == [(1, 0), (1, 0)]


async def test_what_finds_no_place_goes_back_and_runs_when_there_is_one(post: Post) -> None:
    bench, go_on, started, asked = Bench(post), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await go_on.wait()

    task = bench.task(slow, name="slow")
    async with Working(post, bench, concurrency=2) as working:
        run = working.worker._run
        assert run is not None
        run.local_queue.promised += 2  # as by a claim under way
        id = await bench.put(task)
        await bench.until([id], State.ready)
        asked.set()
        run.local_queue.promised -= 2
        go_on.set()
        run.local_queue.demand.news()
        await bench.until([id], State.succeeded)
        assert (await bench.view(id)).attempt == 1


async def test_a_session_that_was_lost_runs_no_job_that_it_was_handed_before(post: Post) -> None:
    bench, ran = Bench(post), []

    async def work() -> None:
        ran.append(1)

    task = bench.task(work)
    post.loses = {0}
    async with Working(post, bench) as working:
        id = await bench.put(task)
        await post.lost.wait()
        await post.leave(working.worker.session)  # as by a sweep while this process stood still
        post.asleep.clear()
        working.beat()
        await bench.until([id], State.succeeded)
        run = working.worker._run
        assert run is not None
        run._listener._take(post.kept[0])
        await bench.until([await bench.put(task)], State.succeeded)
    assert len(ran) == 2


async def test_a_handed_job_takes_a_place_of_its_executor(post: Post) -> None:
    bench, go_on = Bench(post), asyncio.Event()
    loop, running = asyncio.get_running_loop(), []

    def work(n: int) -> None:
        running.append(n)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

    task = bench.task(work)
    async with Working(post, bench, threads=2) as working:
        assert working.takes == Takes(2, 2)
        ids = [await bench.put(task, {"n": n}) for n in range(3)]
        await bench.until(ids[:2], State.running)
        assert (await bench.view(ids[2])).state is State.ready
        go_on.set()
        await bench.until(ids, State.succeeded)


async def test_a_worker_until_empty_is_handed_nothing(post: Post) -> None:
    bench = Bench(post)

    async def work() -> None: ...

    bench.task(work)
    await bench.drain({"linger_ms": 0})
    assert {request.takes.urgent for request in post.claims} == {0}


async def test_limited_jobs_go_the_ordinary_way(post: Post) -> None:
    bench = Bench(post)

    async def work() -> None: ...

    task = bench.task(work, limits=[Limit("x", concurrency=1)])
    async with Working(post, bench):
        await bench.until([await bench.put(task)], State.succeeded)
        assert post.claims != []
