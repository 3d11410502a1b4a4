"""Ageing: one job in so many is claimed past more urgent ones, and every level gets its turn."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from limpet.core.errors import InvalidOption
from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed
from limpet.core.limits.limit import Limit
from limpet.runtime import WorkerSettings
from limpet.runtime.ageing import Ageing
from tests.runtime.flood import flooded
from tests.runtime.running import Bench, Watched

ONE_BY_ONE = {"concurrency": 1, "ahead_ms": 0}
PLAIN = False, False, False  # a claim that gives nothing away that is short
AT_LIMITS = False, False, True


def job(priority: int) -> Claimed:
    return Claimed(b"i" * 16, 1, 1, 0, Lane("q", "t", priority), Policy(), b"{}", 0, 0, 0)


def claims(ageing: Ageing, levels: list[int]) -> Iterator[int]:
    """Which levels a worker is given, one job at a time, while each of these has jobs without end."""
    while True:
        owed = ageing.owed(100, PLAIN)
        passing = [job(level) for level in levels if level >= ageing.most_urgent] if owed else []
        if passing:
            ageing.took(passing[:1], passing[:1], PLAIN, asked=1)
            yield passing[0].lane.priority
        else:
            if owed:
                ageing.nobody_came(ageing.most_urgent, PLAIN, anybody_could=True)
            ageing.count([job(levels[0])], PLAIN)
            yield levels[0]


@pytest.mark.parametrize("levels", [[0, 3, 5, 8], [3, 5, 8], [5, 8], [0, 9], [4], [9], list(range(10))], ids=str)
@pytest.mark.parametrize("every", [2, 5, 20])
def test_each_level_gets_one_job_in_so_many_and_the_most_urgent_all_others(every: int, levels: list[int]) -> None:
    others, given = levels[1:], claims(Ageing(every, random.Random(1)), levels)
    # Nobody knows that nobody waits behind the last level before it was that one's turn: one more in each round.
    round = every * len(others) + 1
    jobs = [next(given) for _ in range(every + 50 * round)]
    for start in range(every, len(jobs) - round):
        assert set(others) <= set(jobs[start : start + round])
    aged = sum(level != levels[0] for level in jobs)
    assert len(jobs) // every - 2 <= aged <= len(jobs) // every if others else not aged


def test_what_no_worker_could_hold_and_what_was_handed_back_is_not_owed() -> None:
    ageing = Ageing(2, random.Random(1))
    ageing.count([job(0)] * 100, PLAIN)
    assert ageing.owed(10, PLAIN) == 10
    ageing.give_back(16)
    assert ageing.owed(10, PLAIN) == 2
    ageing.took([job(8), job(8)], [], PLAIN, asked=2)
    ageing.give_back(2)
    assert (ageing.owed(10, PLAIN), ageing.most_urgent) == (2, 1)


def test_what_is_owed_stays_owed_while_not_everybody_could_come() -> None:
    ageing = Ageing(2, random.Random(1))
    ageing.count([job(3)] * 4, PLAIN)
    ageing.nobody_came(4, PLAIN, anybody_could=False)
    assert ageing.owed(10, PLAIN) == 2
    ageing.nobody_came(4, PLAIN, anybody_could=True)
    assert ageing.owed(10, PLAIN) == 0
    ageing.count([job(3)] * 2, PLAIN)
    assert ageing.owed(10, PLAIN) == 1


def test_two_that_asked_behind_the_last_level_at_once_begin_one_round() -> None:
    ageing = Ageing(2, random.Random(1))
    ageing.count([job(3)] * 6, PLAIN)
    ageing.took([job(8)], [job(8)], PLAIN, asked=1)
    ageing.count([job(3)], PLAIN)
    for _ in range(2):
        ageing.nobody_came(9, PLAIN, anybody_could=True)
    assert (ageing.owed(10, PLAIN), ageing.most_urgent) == (3, 4)


@pytest.mark.parametrize("every_so_many", [1, 2, 4, 7])
def test_where_a_limit_has_room_now_and_then_aged_jobs_get_some_of_it_and_not_all(every_so_many: int) -> None:
    ageing, given = Ageing(4, random.Random(1)), []
    for n in range(2000):
        has_room = n % every_so_many == 0
        owed = ageing.owed(10, AT_LIMITS)
        if owed and has_room:
            ageing.took([job(8)], [job(8)], AT_LIMITS, asked=owed)
            ageing.nobody_came(9, AT_LIMITS, anybody_could=False)  # behind the last level
        elif owed:
            ageing.nobody_came(ageing.most_urgent, AT_LIMITS, anybody_could=True)
        if has_room:
            given.append(bool(owed))
        ageing.count([job(0)] * 9, AT_LIMITS)
    assert 0.15 < sum(given) / len(given) < 0.4


@pytest.mark.parametrize("value", [1, 0, -5, 2.5, "20", True, 10**30], ids=repr)
def test_a_number_that_means_nothing_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"from 2 to .*, got {re.escape(repr(value))}"):
        WorkerSettings(ageing=value)


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


async def test_of_what_a_limit_lets_through_one_job_in_so_many_is_aged_however_many_run_beside_it() -> None:
    bench, started, go_on = Bench(Watched()), asyncio.Queue[str](), asyncio.Semaphore(0)

    async def call(level: str) -> None:
        started.put_nowait(level)
        await go_on.acquire()

    async def light() -> None:
        started.put_nowait("light")

    calls, many = bench.task(call, limits=[Limit("api", concurrency=1)]), bench.task(light, priority="high")
    for level in ("low", "high"):
        for _ in range(40):
            await bench.put(calls, {"level": level}, priority=level)
    stop = asyncio.Event()
    worker = asyncio.create_task(
        bench.worker({"concurrency": 20, "ahead_ms": 0, "ageing": 4}, rng=random.Random(1)).run(stop)
    )
    called = [await started.get()]
    for _ in range(39):
        for _ in range(6):
            await bench.put(many)
        assert {await started.get() for _ in range(6)} == {"light"}
        go_on.release()
        called.append(await started.get())
    assert 2 <= called.count("low") <= 26, called
    go_on.release()
    stop.set()
    await worker
    await bench.store.close()


@pytest.mark.parametrize(("high", "limits"), [(800, []), (300, [Limit("api", concurrency=50)])])
async def test_a_worker_that_claims_ahead_lets_every_level_through(
    bench: Bench, high: int, limits: list[Limit]
) -> None:
    levels = {"low": 10, "normal": 10, "high": high}
    order = await flooded(bench, {"ageing": 2, "concurrency": 2}, levels, limits=limits)
    assert (order[-1], len(order)) == ("h", high + 20)


async def test_claims_that_find_no_thread_do_not_count(bench: Bench) -> None:
    levels = {"low": 40, "normal": 40, "high": 60}
    settings = {"ageing": 5, "concurrency": 10, "threads": 1, "ahead_ms": 0}
    order = await flooded(bench, settings, levels, threads=True)
    assert 28 <= order[:40].count("h") <= 36, order


async def test_of_what_a_thread_runs_one_job_in_so_many_is_aged_however_many_run_beside_it() -> None:
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
    for name in (*["low"] * 9, *["high"] * 12):
        await bench.put(heavy, {"name": name}, priority=name)
    for _ in range(8):  # of these a fourth would be aged, if they could
        await bench.put(light, {"name": "light"}, priority="high")
        assert await started.get() == "light"
    next_ones = []
    for _ in range(12):
        go_on.release()
        next_ones.append(await started.get())
    assert 1 <= next_ones.count("low") <= 5, next_ones
    for _ in range(30):
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
    settings = {"concurrency": 30 if threads else 3, "threads": 3, "reserve": 1, "ageing": 4}
    work = asyncio.create_task(bench.worker(settings).run(stop))
    first = [await started.get() for _ in range(3)]
    await bench.put(task, {"name": "urgent"}, priority="high")  # it is told of, and takes the place that is kept
    first.append(await started.get())
    for _ in range(12):
        go_on(1)
        first.append(await started.get())
    assert "low" in first
    go_on(80)
    stop.set()
    await work


async def test_an_aged_job_needs_no_thread_that_exports_hold(bench: Bench) -> None:
    """Urgent jobs find the one thread that is kept for them; those of the loop pass as before."""
    started, loop = asyncio.Queue[str](), asyncio.get_running_loop()
    go_on, exported = asyncio.Semaphore(0), threading.Event()

    def export() -> None:
        loop.call_soon_threadsafe(started.put_nowait, "export")
        exported.wait(30)

    async def waits(name: str) -> None:
        started.put_nowait(name)
        await go_on.acquire()

    slow, task = bench.task(export), bench.task(waits)
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"concurrency": 3, "threads": 1, "reserve": 1, "ageing": 4}).run(stop))
    await bench.put(slow)
    assert await started.get() == "export"
    for _ in range(20):
        await bench.put(task, {"name": "urgent"}, priority="high")
    await bench.put(task, {"name": "low"}, priority="low")
    first = [await started.get() for _ in range(3)]
    for _ in range(8):
        go_on.release()
        first.append(await started.get())
    assert "low" in first
    for _ in range(20):
        go_on.release()
    exported.set()
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
    worker = asyncio.create_task(bench.worker({"concurrency": 3, "reserve": 1, "ageing": 2}).run(stop))
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
    worker = asyncio.create_task(bench.worker({"concurrency": 4, "threads": 1, "reserve": 1, "ageing": 2}).run(stop))
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
    asked, no_beat = [], {"beat_ms": 60_000, "ttl_ms": 180_000}  # one would claim once more
    for ageing in (None, 5):
        store = Watched()
        assert len(await flooded(Bench(store), ONE_BY_ONE | no_beat | {"ageing": ageing})) == 68
        asked.append(len(store.requests))
        await store.close()
    assert asked[0] == asked[1]
