"""What a worker claims: enough, not too much, and urgent jobs past everything."""

from __future__ import annotations

import asyncio
import threading
from itertools import count

from limpet.core.endings.signals import RetryLater
from limpet.core.jobs.lease import Claim, ClaimRequest, Wake
from limpet.core.jobs.state import State
from limpet.core.limits.limit import Limit
from limpet.runtime import WorkerEvents
from limpet.runtime.context import current_job
from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench, Hesitant, Watched


class Hasty(SqliteStore):
    """The real engine where all jobs are limited: to who has no place it says so before anything else can happen."""

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        return await super().claim(request, now_ms=now_ms) if request.slots else Claim((), 0)


async def test_a_critical_job_starts_while_slow_ones_hold_every_other_slot(bench: Bench) -> None:
    filled, go_on, urgent_ran = asyncio.Event(), asyncio.Event(), asyncio.Event()
    running = 0

    async def export() -> None:
        nonlocal running
        running += 1
        if running == 9:
            filled.set()
        await go_on.wait()

    async def email() -> None:
        urgent_ran.set()

    slow = bench.task(export)
    for _ in range(30):
        await bench.put(slow)
    urgent = bench.task(email)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 9, "reserve": 1}).run(stop))
    await filled.wait()
    await bench.put(urgent, priority="critical")
    await urgent_ran.wait()
    assert running == 9
    stop.set()
    go_on.set()
    await work


async def test_more_urgent_jobs_than_the_reserve_follow_as_places_fall_free(bench: Bench) -> None:
    filled, go_on = asyncio.Event(), asyncio.Event()
    done: list[int] = []
    all_done = asyncio.Event()
    running = 0

    async def export() -> None:
        nonlocal running
        running += 1
        if running == 9:
            filled.set()
        await go_on.wait()

    async def email(n: int) -> None:
        await asyncio.sleep(0)
        done.append(n)
        if len(done) == 20:
            all_done.set()

    slow = bench.task(export)
    for _ in range(30):
        await bench.put(slow)
    urgent = bench.task(email, priority="high")
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 9}).run(stop))  # one is kept: a task is urgent
    await filled.wait()
    for n in range(20):
        await bench.put(urgent, {"n": n})
    await all_done.wait()
    assert running == 9
    stop.set()
    go_on.set()
    await work


async def test_of_urgent_jobs_that_come_together_some_get_the_places_that_are_kept_for_them(bench: Bench) -> None:
    """Those that find an ordinary place come with one claim, and nothing wakes the worker for the others."""
    filled, go_on = asyncio.Event(), asyncio.Event()
    running = 0

    async def email() -> None:
        nonlocal running
        running += 1
        if running == 3:
            filled.set()
        await go_on.wait()

    urgent = bench.task(email, priority="critical")
    for _ in range(3):
        await bench.put(urgent)
    stop = asyncio.Event()
    settings = {"concurrency": 2, "reserve": 1, "beat_ms": 300_000, "ttl_ms": 600_000}  # no beat asks again meanwhile
    work = asyncio.create_task(bench.worker(settings).run(stop))
    async with asyncio.timeout(60):
        await filled.wait()
    stop.set()
    go_on.set()
    await work


async def test_slow_jobs_are_not_held_beyond_the_slots(bench: Bench) -> None:
    filled, go_on = asyncio.Event(), asyncio.Event()
    running = 0

    async def slow() -> None:
        nonlocal running
        running += 1
        if running == 3:
            filled.set()
        await go_on.wait()

    spec = bench.task(slow)
    for _ in range(20):
        await bench.put(spec)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 3}).run(stop))
    await filled.wait()
    assert (await bench.store.count()).total(State.running) == 3
    stop.set()
    go_on.set()
    await work


async def test_quick_jobs_that_turn_slow_are_given_to_whoever_is_free(bench: Bench) -> None:
    go_on = asyncio.Event()
    quick_left = 300
    slow_started = asyncio.Event()

    async def turns_slow() -> None:
        nonlocal quick_left
        quick_left -= 1
        if quick_left < 0:
            slow_started.set()
            await go_on.wait()

    spec = bench.task(turns_slow)
    for _ in range(400):
        await bench.put(spec)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 4}).run(stop))
    await slow_started.wait()
    taken: list[bytes] = []
    while len(taken) < 90:
        jobs = await bench.claim_as(f"other {len(taken)}", limit=100)
        taken += [job.id for job in jobs]
    assert len(set(taken)) == len(taken)
    stop.set()
    go_on.set()
    await work


async def test_limited_jobs_are_asked_for_only_with_free_slots() -> None:
    """Even by a worker that claims ahead because its jobs are quick."""
    store = Watched()
    bench = Bench(store)
    running = most = 0

    async def quick() -> None: ...

    async def limited() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    plain, under_limit = bench.task(quick), bench.task(limited, limits=[Limit("smtp", concurrency=50)])
    for _ in range(300):
        await bench.put(plain)
        await bench.put(under_limit)
    report = await bench.drain({"concurrency": 2})
    assert report.succeeded == 600
    assert most <= 2
    assert any(request.limit > request.slots for request in store.requests)
    assert all(request.slots <= 2 for request in store.requests)
    await store.close()


async def test_limited_jobs_are_asked_for_only_as_far_as_threads_are_free_for_them() -> None:
    """Claimed and handed back, they had left their rate for a while."""
    store = Watched()
    bench = Bench(store)
    filled, go_on = asyncio.Event(), threading.Event()
    loop, running = asyncio.get_running_loop(), 0

    def call() -> None:
        nonlocal running
        running += 1
        if running == 2:
            loop.call_soon_threadsafe(filled.set)
        go_on.wait(30)

    async def email() -> None:
        emailed.set()

    emailed = asyncio.Event()
    calls, emails = bench.task(call, limits=[Limit("model", rate="1000/h", burst=50)]), bench.task(email)
    for _ in range(20):
        await bench.put(calls)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 10, "threads": 2}).run(stop))
    await filled.wait()
    for _ in range(5):
        await bench.put(calls, priority="critical")
    await bench.put(emails, priority="critical")
    await emailed.wait()
    assert sorted(store.given) == ["call", "call", "email"]
    stop.set()
    go_on.set()
    await work
    await store.close()


async def test_limited_jobs_of_the_loop_go_on_while_those_of_threads_hold_every_thread() -> None:
    bench = Bench(Hasty(None))
    go_on, all_light, light_ran = threading.Event(), asyncio.Event(), 0

    def heavy() -> None:
        go_on.wait(30)

    async def light() -> None:
        nonlocal light_ran
        light_ran += 1
        if light_ran == 20:
            all_light.set()

    heavies = bench.task(heavy, limits=[Limit("model", rate="1000/h", burst=50)])
    lights = bench.task(light, limits=[Limit("mail", rate="1000/h", burst=50)])
    for _ in range(20):
        await bench.put(heavies)
    for _ in range(20):
        await bench.put(lights, priority="low")
    settings = {"concurrency": 10, "threads": 2, "beat_ms": 60_000, "ttl_ms": 180_000}
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker(settings).run(stop))
    await asyncio.wait_for(all_light.wait(), 30)
    stop.set()
    go_on.set()
    await work
    await bench.store.close()


async def test_thread_jobs_beyond_the_threads_are_left_to_others_and_the_loop_goes_on(bench: Bench) -> None:
    filled, go_on = threading.Event(), threading.Event()
    running = 0
    all_light = asyncio.Event()
    light_ran = 0

    def heavy() -> None:
        nonlocal running
        running += 1
        if running == 2:
            filled.set()
        go_on.wait(30)

    async def light() -> None:
        nonlocal light_ran
        light_ran += 1
        if light_ran == 20:
            all_light.set()

    heavies, lights = bench.task(heavy), bench.task(light)
    for _ in range(50):
        await bench.put(heavies)
    for _ in range(20):
        await bench.put(lights)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 10, "threads": 2}).run(stop))
    await asyncio.to_thread(filled.wait)
    await all_light.wait()
    others = await bench.claim_as("other", limit=100)
    assert len(others) == 48
    stop.set()
    go_on.set()
    await work


async def test_urgent_jobs_that_find_no_thread_are_not_claimed_and_handed_back_in_circles() -> None:
    store = Watched()
    bench = Bench(store)
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Queue[None](), threading.Semaphore(0)

    def heavy() -> None:
        loop.call_soon_threadsafe(started.put_nowait, None)
        go_on.acquire()

    async def light() -> None:
        started.put_nowait(None)

    heavies, lights = bench.task(heavy, priority="high"), bench.task(light, priority="high")
    stop = asyncio.Event()
    settings = {"concurrency": 9, "threads": 1, "reserve": 1, "beat_ms": 60_000, "ttl_ms": 180_000}  # no beat helps out
    work = asyncio.create_task(bench.worker(settings).run(stop))
    for _ in range(2):
        await bench.put(heavies)
        await started.get()
    for _ in range(20):
        await bench.put(heavies)
        await bench.put(lights)
        await started.get()
    assert len(store.requests) < 150
    store.requests.clear()
    for _ in range(100):
        await bench.put(lights, priority="normal")
    for _ in range(100):
        await started.get()
    assert [request.claimer for request in store.requests].count("bypass") < 20
    go_on.release()
    await started.get()  # the thread that fell free, and that is kept for urgent jobs, is taken
    for _ in range(30):
        go_on.release()
    stop.set()
    report = await work
    assert report.released < 50
    await store.close()


async def test_news_are_not_lost_while_the_bypass_has_been_promised_every_slot() -> None:
    store = Hesitant("bypass")
    bench = Bench(store)
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Queue[str](), threading.Event()

    def heavy() -> None:
        loop.call_soon_threadsafe(started.put_nowait, "heavy")
        go_on.wait(30)

    async def light() -> None:
        started.put_nowait("light")

    heavies, lights = bench.task(heavy, priority="high"), bench.task(light)
    stop = asyncio.Event()
    settings = {"concurrency": 2, "threads": 1, "beat_ms": 60_000, "ttl_ms": 180_000}
    work = asyncio.create_task(bench.worker(settings).run(stop))
    await bench.put(heavies)
    assert await started.get() == "heavy"
    while not (await store.sessions())[0].idle:
        pass
    await bench.put(heavies)  # the worker sleeps for other tasks alone, so this one is told of as urgent
    await store.asked.wait()
    await bench.put(lights)
    await store.woken.wait()
    for _ in range(5):  # the fetcher looks, and finds no slot
        await asyncio.sleep(0)
    store.go_on.set()
    assert await started.get() == "light"
    stop.set()
    go_on.set()
    await work
    await store.close()


async def test_an_idle_worker_asks_nothing_until_it_is_woken() -> None:
    store = Watched()
    bench = Bench(store)
    ran = asyncio.Event()

    async def noop() -> None:
        ran.set()

    spec = bench.task(noop)
    stop, ready = asyncio.Event(), asyncio.Event()
    is_ready = WorkerEvents(on_ready=lambda info: ready.set())
    worker = bench.worker({"beat_ms": 60_000, "ttl_ms": 180_000}, events=is_ready)
    work = asyncio.create_task(worker.run(stop))
    await ready.wait()
    while not (await store.sessions())[0].idle:
        pass
    await asyncio.wait({work}, timeout=0.1)
    assert len(store.requests) == 1
    await bench.put(spec)
    await ran.wait()
    stop.set()
    await work
    await store.close()


async def test_a_delayed_job_starts_when_it_is_due_without_any_wake_up(bench: Bench) -> None:
    ran = asyncio.Event()

    async def noop() -> None:
        ran.set()

    await bench.put(bench.task(noop), delay=0.05)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 60_000, "ttl_ms": 180_000}).run(stop))
    async with asyncio.timeout(30):  # less than a beat
        await ran.wait()
    stop.set()
    await work


class Halting(SqliteStore):
    """The real engine; who claims past the others is not answered before these were, and the test wakes the worker."""

    def __init__(self) -> None:
        super().__init__(None)
        self.wakes: asyncio.Queue[Wake] = asyncio.Queue()
        self.past_others = asyncio.Event()
        self.idle = asyncio.Event()
        self.without_places = asyncio.Event()

    async def claim(self, request: ClaimRequest, *, now_ms: int | None = None) -> Claim:
        if request.claimer == "bypass":
            self.past_others.set()
            await self.without_places.wait()
        answer = await super().claim(request, now_ms=now_ms)
        if request.claimer == "fetcher":
            self.idle.clear() if answer.jobs else self.idle.set()
            if not request.slots:
                self.without_places.set()
        return answer

    async def wait(self, session: str, timeout_ms: int) -> Wake:
        return await self.wakes.get()


async def test_a_limited_job_that_comes_while_all_places_are_asked_for_is_not_overlooked() -> None:
    store = Halting()
    await store.open()
    bench = Bench(store)

    async def call() -> None: ...

    async def quick() -> None: ...

    spec = bench.task(call, limits=[Limit("api", concurrency=1)])
    later = await bench.put(spec, delay=3600)
    first = [await bench.put(bench.task(quick)) for _ in range(20)]  # after which it asks for more than it has places
    settings = {"linger_ms": 7_200_000, "concurrency": 4}
    work = asyncio.create_task(bench.drain(settings, clock_s=map(float, count()).__next__))
    await bench.until(first, State.succeeded)
    await store.idle.wait()
    store.wakes.put_nowait(Wake(urgent=True))
    await store.past_others.wait()
    await store.cancel([later], "not now")
    await bench.put(spec)
    store.wakes.put_nowait(Wake(work=True))
    async with asyncio.timeout(60):
        assert (await work).succeeded == 21
    await store.close()


async def test_until_empty_lingers_for_what_is_due_soon(bench: Bench) -> None:
    async def noop() -> None: ...

    spec = bench.task(noop)
    await bench.put(spec, delay=3600)
    assert (await bench.drain()).succeeded == 0
    await bench.put(spec, delay=0.05)
    assert (await bench.drain({"linger_ms": 10_000})).succeeded == 1


async def test_a_short_retry_is_not_slept_through_when_its_wake_up_overtakes_an_empty_claim(bench: Bench) -> None:
    """The claim and the settlement share a commit; the news of the retry arrived before the claim's empty answer,
    which then said "dry", and the retry waited for the next beat."""
    done = asyncio.Event()

    async def again(n: int) -> None:
        if current_job().attempt == 1:
            raise RetryLater(0.001)
        if n == 19:
            done.set()

    task, stop = bench.task(again, retry=2), asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 60_000, "ttl_ms": 180_000}).run(stop))
    for n in range(20):
        id = await bench.put(task, {"n": n})
        await asyncio.wait_for(bench.store.watch(id, None), 30)
    await done.wait()
    stop.set()
    await work
