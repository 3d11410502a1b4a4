"""Ageing: one job in so many is claimed past more urgent ones, and every level gets its turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from holdfast.core.errors import InvalidOption
from holdfast.core.job import Lane, Policy
from holdfast.core.lease import Claimed
from holdfast.core.limit import Limit
from holdfast.runtime import WorkerSettings
from holdfast.runtime.ageing import Ageing
from tests.runtime.flood import flooded
from tests.runtime.running import Bench, Watched

ONE_BY_ONE = {"concurrency": 1, "ahead_ms": 0}


def job(priority: int) -> Claimed:
    return Claimed(b"i" * 16, 1, 1, 0, Lane("q", "t", priority), Policy(), b"{}", 0, 0, 0)


def claims(ageing: Ageing, levels: list[int]) -> Iterator[int]:
    """Which levels a worker is given, one job at a time, while each of these has jobs without end."""
    while True:
        passing = [job(level) for level in levels if level >= ageing.most_urgent] if ageing.owed(100) else []
        if passing:
            ageing.took(passing[:1], passing[:1])
            yield passing[0].lane.priority
        else:
            if ageing.owed(100):
                ageing.nobody_came(ageing.most_urgent, anybody_could=True)
            ageing.count([job(levels[0])])
            yield levels[0]


@pytest.mark.parametrize("levels", [[0, 3, 5, 8], [3, 5, 8], [5, 8], [0, 9], [4], [9], list(range(10))], ids=str)
@pytest.mark.parametrize("every", [2, 5, 20])
def test_each_level_gets_one_job_in_so_many_and_the_most_urgent_all_others(every: int, levels: list[int]) -> None:
    others, given = levels[1:], claims(Ageing(every), levels)
    # Nobody knows that nobody waits behind the last level before it was that one's turn: one more in each round.
    round = every * len(others) + 1
    jobs = [next(given) for _ in range(every + 50 * round)]
    for start in range(every, len(jobs) - round):
        assert set(others) <= set(jobs[start : start + round])
    aged = sum(level != levels[0] for level in jobs)
    assert len(jobs) // every - 2 <= aged <= len(jobs) // every if others else not aged


def test_what_no_worker_could_hold_and_what_was_handed_back_is_not_owed() -> None:
    ageing = Ageing(2)
    ageing.count([job(0)] * 100)
    assert ageing.owed(10) == 10
    ageing.give_back(16)
    assert ageing.owed(10) == 2
    ageing.took([job(8), job(8)], [])
    ageing.give_back(2)
    assert (ageing.owed(10), ageing.most_urgent) == (2, 1)


def test_what_is_owed_stays_owed_while_not_everybody_could_come() -> None:
    ageing = Ageing(2)
    ageing.count([job(3)] * 4)
    ageing.nobody_came(4, anybody_could=False)
    assert ageing.owed(10) == 2
    ageing.nobody_came(4, anybody_could=True)
    assert ageing.owed(10) == 0
    ageing.count([job(3)] * 2)
    assert ageing.owed(10) == 1


def test_two_that_asked_behind_the_last_level_at_once_begin_one_round() -> None:
    ageing = Ageing(2)
    ageing.count([job(3)] * 6)
    ageing.took([job(8)], [job(8)])
    ageing.count([job(3)])
    for _ in range(2):
        ageing.nobody_came(9, anybody_could=True)
    assert (ageing.owed(10), ageing.most_urgent) == (3, 4)


def test_without_ageing_nothing_is_owed() -> None:
    ageing = Ageing(None)
    ageing.count([job(0)] * 100)
    assert ageing.owed(100) == 0


@pytest.mark.parametrize("value", [1, 0, -5])
def test_a_number_that_means_nothing_is_refused(value: int) -> None:
    with pytest.raises(InvalidOption, match=f"ageing is {value}") as caught:
        WorkerSettings(ageing=value)
    assert caught.value.fix.startswith("2 or more")


# -- workers


async def test_without_ageing_a_flood_of_urgent_jobs_goes_first(bench: Bench) -> None:
    assert await flooded(bench, ONE_BY_ONE) == "h" * 60 + "n" * 4 + "l" * 4


async def test_one_job_in_so_many_is_less_urgent_than_the_flood(bench: Bench) -> None:
    order = await flooded(bench, ONE_BY_ONE | {"ageing": 5})
    assert order == ("hhhhhn" + "hhhhl") * 4 + "h" * 24


async def test_at_a_limit_that_is_short_every_level_gets_its_turn_too(bench: Bench) -> None:
    """There the flood takes no place of the worker's, but whatever the limit allows."""
    order = await flooded(bench, {"ageing": 5}, limits=[Limit("api", concurrency=1)])
    assert set(order[50:]) == {"h"}, order


@pytest.mark.parametrize(("high", "limits"), [(800, []), (300, [Limit("api", concurrency=50)])])
async def test_a_worker_that_claims_ahead_lets_every_level_through(
    bench: Bench, high: int, limits: list[Limit]
) -> None:
    levels = {"low": 10, "normal": 10, "high": high}
    order = await flooded(bench, {"ageing": 5, "concurrency": 2}, levels, limits=limits)
    assert (order[-1], len(order)) == ("h", high + 20)


async def test_claims_that_find_no_thread_do_not_count(bench: Bench) -> None:
    levels = {"low": 40, "normal": 40, "high": 60}
    settings = {"ageing": 5, "concurrency": 10, "threads": 1, "ahead_ms": 0}
    order = await flooded(bench, settings, levels, threads=True)
    assert 28 <= order[:40].count("h") <= 36, order


async def test_what_is_owed_waits_for_the_thread_that_it_needs() -> None:
    bench = Bench(Watched())
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Queue[str](), threading.Semaphore(0)

    def in_thread(name: str) -> None:
        loop.call_soon_threadsafe(started.put_nowait, name)
        go_on.acquire()

    async def in_loop(name: str) -> None:
        started.put_nowait(name)

    heavy, light = bench.task(in_thread), bench.task(in_loop)
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"concurrency": 4, "threads": 1, "ahead_ms": 0, "ageing": 4}).run(stop))
    await bench.put(heavy, {"name": "first"}, priority="high")
    assert await started.get() == "first"
    for name in (*["low"] * 2, *["high"] * 12):
        await bench.put(heavy, {"name": name}, priority=name)
    for _ in range(8):  # of these a fourth would be aged, if they could
        await bench.put(light, {"name": "light"}, priority="high")
        assert await started.get() == "light"
    next_ones = []
    for _ in range(3):
        go_on.release()
        next_ones.append(await started.get())
    assert next_ones == ["low", "high", "low"]  # the second was claimed at once, too, and handed back
    for _ in range(20):
        go_on.release()
    stop.set()
    await worker
    await bench.store.close()


@pytest.mark.parametrize("threads", [False, True])
async def test_an_aged_job_starts_though_urgent_ones_leave_no_place_free(bench: Bench, threads: bool) -> None:
    """Whenever a place falls free, an urgent job waits for it, and ordinary jobs are not let in beside so many."""
    started, loop = asyncio.Queue[str](), asyncio.get_running_loop()
    in_loop, in_thread = asyncio.Semaphore(0), threading.Semaphore(0)

    async def waits_in_loop(name: str) -> None:
        started.put_nowait(name)
        await in_loop.acquire()

    def waits_in_thread(name: str) -> None:
        loop.call_soon_threadsafe(started.put_nowait, name)
        in_thread.acquire()

    def go_on(times: int) -> None:
        for _ in range(times):
            in_loop.release()
            in_thread.release()

    task = bench.task(waits_in_thread if threads else waits_in_loop)
    await bench.put(task, {"name": "low"}, priority="low")
    for _ in range(60):
        await bench.put(task, {"name": "urgent"}, priority="high")
    stop = asyncio.Event()
    settings = {"concurrency": 30 if threads else 4, "threads": 4, "ageing": 4}
    work = asyncio.create_task(bench.worker(settings).run(stop))
    first = [await started.get() for _ in range(3)]
    await bench.put(task, {"name": "urgent"}, priority="high")  # it is told of, and takes the place that is reserved
    first.append(await started.get())
    go_on(1)
    assert "low" in [*first, await started.get()]
    go_on(80)
    stop.set()
    await work


async def test_an_aged_job_never_takes_the_place_that_is_kept_for_urgent_ones(bench: Bench) -> None:
    filled, go_on, ran = asyncio.Event(), asyncio.Event(), asyncio.Queue[str]()
    running = 0

    async def export() -> None:
        nonlocal running
        running += 1
        if running == 3:
            filled.set()
        await go_on.wait()

    async def work(name: str) -> None:
        ran.put_nowait(name)

    slow, task = bench.task(export), bench.task(work)
    for _ in range(3):
        await bench.put(slow)
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"concurrency": 4, "ageing": 2}).run(stop))
    await filled.wait()
    await bench.put(task, {"name": "cleanup"}, priority="low")
    for n in range(8):
        await bench.put(task, {"name": f"email {n}"}, priority="critical")
        assert await ran.get() == f"email {n}"
    assert ran.empty()
    stop.set()
    go_on.set()
    await worker


async def test_no_aged_job_is_claimed_for_a_thread_that_is_kept_for_urgent_ones(bench: Bench) -> None:
    loop, ran, go_on = asyncio.get_running_loop(), asyncio.Queue[str](), threading.Event()

    def export() -> None:
        loop.call_soon_threadsafe(ran.put_nowait, "export")
        go_on.wait(30)

    def email() -> None:
        loop.call_soon_threadsafe(ran.put_nowait, "email")

    exports, emails = bench.task(export), bench.task(email, priority="high")
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"concurrency": 4, "threads": 2, "ageing": 2}).run(stop))
    await bench.put(exports)
    assert await ran.get() == "export"
    await bench.put(exports, priority="low")
    for _ in range(10):
        await bench.put(emails)
        assert await ran.get() == "email"
    stop.set()
    go_on.set()
    assert (await worker).released == 0


async def test_ageing_costs_no_claim() -> None:
    asked = []
    for ageing in (None, 5):
        store = Watched()
        assert len(await flooded(Bench(store), ONE_BY_ONE | {"ageing": ageing})) == 68
        asked.append(len(store.requests))
        await store.close()
    assert asked[0] == asked[1]
