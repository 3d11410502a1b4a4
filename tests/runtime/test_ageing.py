"""Ageing: one job in so many is claimed past more urgent ones, and every level gets its turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.core.errors import InvalidOption
from holdfast.core.job import Lane, Policy
from holdfast.core.lease import Claimed
from holdfast.core.limit import Limit
from holdfast.core.state import State
from holdfast.runtime import WorkerSettings
from holdfast.runtime.ageing import Ageing, Reach
from tests.runtime.running import Bench, Hesitant, Watched

ANYTHING: Reach = (True, True, True)
ONE_BY_ONE = {"concurrency": 1, "ahead_ms": 0}


def job(priority: int) -> Claimed:
    return Claimed(b"i" * 16, 1, 1, 0, Lane("q", "t", priority), Policy(), b"{}", 0, 0, 0)


def claims(ageing: Ageing, levels: list[int]) -> Iterator[int]:
    """Which levels a worker is given, one job at a time, while each of these has jobs without end."""
    while True:
        if not ageing.owed(100, ANYTHING):
            ageing.count([job(levels[0])])
            yield levels[0]
            continue
        found = [level for level in levels if level >= ageing.floor]
        if found:
            ageing.took([job(found[0])], [job(found[0])])
            yield found[0]
        else:
            ageing.found_nothing(ANYTHING)


@pytest.mark.parametrize("levels", [[0, 3, 5, 8], [3, 5, 8], [5, 8], [0, 9], [4], [9], list(range(10))], ids=str)
@pytest.mark.parametrize("every", [2, 5, 20])
def test_each_level_gets_one_job_in_so_many_and_the_most_urgent_all_others(every: int, levels: list[int]) -> None:
    others, given = levels[1:], claims(Ageing(every), levels)
    for _ in range(every):
        assert next(given) == levels[0]
    for _ in range(3):
        rounds = [next(given) for _ in range(every * max(1, len(others)))]
        assert [level for level in rounds if level != levels[0]] == others
        assert rounds[::every] == (others or levels)


def test_a_claim_that_found_nothing_is_repeated_when_more_was_claimed_or_more_can_start() -> None:
    ageing, no_thread = Ageing(2), (False, True, True)
    ageing.count([job(3)] * 4)
    assert ageing.owed(100, no_thread) == 2
    ageing.found_nothing(no_thread)
    assert (ageing.owed(100, no_thread), ageing.owed(100, ANYTHING)) == (0, 2)
    ageing.count([job(3)] * 2)
    assert ageing.owed(100, no_thread) == 3
    ageing.found_nothing(ANYTHING)
    assert ageing.owed(100, ANYTHING) == 0
    ageing.count([job(3)] * 2)
    assert ageing.owed(100, ANYTHING) == 1


def test_what_was_handed_back_and_what_no_worker_could_hold_is_not_owed() -> None:
    ageing = Ageing(2)
    ageing.count([job(0)] * 100)
    assert ageing.owed(10, ANYTHING) == 10
    ageing.give_back(16)
    assert ageing.owed(10, ANYTHING) == 2
    ageing.took([job(8), job(8)], [])
    ageing.give_back(2)
    assert (ageing.owed(10, ANYTHING), ageing.floor) == (2, 1)


def test_without_ageing_nothing_is_owed() -> None:
    ageing = Ageing(None)
    ageing.count([job(0)] * 100)
    assert ageing.owed(100, ANYTHING) == 0


@pytest.mark.parametrize("value", [1, 0, -5])
def test_a_number_that_means_nothing_is_refused(value: int) -> None:
    with pytest.raises(InvalidOption, match=f"ageing is {value}") as caught:
        WorkerSettings(ageing=value)
    assert caught.value.fix.startswith("2 or more")


# -- workers


FLOOD = {"low": 4, "normal": 4, "high": 60}


async def flooded(
    bench: Bench,
    settings: dict[str, Any],
    levels: dict[str, int] = FLOOD,
    *,
    threads: bool = False,
    **options: Any,
) -> str:
    """The first letters of the priorities of so many jobs of each, in the order in which they ran."""
    ran: list[str] = []

    async def in_loop(level: str) -> None:
        ran.append(level[0])

    def in_thread(level: str) -> None:
        ran.append(level[0])

    task = bench.task(in_thread if threads else in_loop, **options)
    for level, count in levels.items():
        for _ in range(count):
            await bench.put(task, {"level": level}, priority=level)
    await bench.drain(settings)
    return "".join(ran)


async def test_without_ageing_a_flood_of_urgent_jobs_goes_first(bench: Bench) -> None:
    assert await flooded(bench, ONE_BY_ONE) == "h" * 60 + "n" * 4 + "l" * 4


async def test_one_job_in_so_many_is_less_urgent_than_the_flood(bench: Bench) -> None:
    order = await flooded(bench, ONE_BY_ONE | {"ageing": 5})
    assert order == "h" + ("hhhhn" + "hhhhl") * 4 + "h" * 27


async def test_at_a_limit_that_is_short_every_level_gets_its_turn_too(bench: Bench) -> None:
    """There the flood takes no place of the worker's, but whatever the limit allows."""
    order = await flooded(bench, {"ageing": 5}, limits=[Limit("api", concurrency=1)])
    assert order == "h" + ("hhhhn" + "hhhhl") * 4 + "h" * 27


@pytest.mark.parametrize(("high", "limits"), [(800, []), (300, [Limit("api", concurrency=50)])])
async def test_a_worker_that_claims_ahead_lets_every_level_through(
    bench: Bench, high: int, limits: list[Limit]
) -> None:
    levels = {"low": 10, "normal": 10, "high": high}
    order = await flooded(bench, {"ageing": 5, "concurrency": 2}, levels, limits=limits)
    assert (order[-1], len(order)) == ("h", high + 20)


async def test_claims_that_find_no_thread_do_not_count(bench: Bench) -> None:
    levels = {"low": 40, "normal": 40, "high": 60}
    order = await flooded(bench, {"ageing": 5, "concurrency": 10, "threads": 1}, levels, threads=True)
    assert 28 <= order[:40].count("h") <= 36, order


async def test_an_aged_job_that_an_urgent_one_beats_to_the_thread_has_the_next() -> None:
    store = Hesitant("ageing")
    bench = Bench(store)
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Queue[str](), threading.Semaphore(0)

    def work(name: str) -> None:
        loop.call_soon_threadsafe(started.put_nowait, name)
        go_on.acquire()

    task = bench.task(work)
    low = await bench.put(task, {"name": "low"}, priority="low")
    for _ in range(20):
        await bench.put(task, {"name": "urgent"}, priority="high")
    stop = asyncio.Event()
    worker = asyncio.create_task(bench.worker({"concurrency": 4, "threads": 1, "ageing": 4, "ahead_ms": 0}).run(stop))
    while not store.asked.is_set():  # until that is answered, urgent jobs have the thread
        assert await started.get() == "urgent"
        go_on.release()
    assert await started.get() == "urgent"
    store.go_on.set()
    await store.answered.wait()
    await bench.until([low], State.ready)
    go_on.release()
    assert await started.get() == "low"
    for _ in range(20):
        go_on.release()
    stop.set()
    await worker
    await store.close()


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


async def test_a_flood_with_nobody_behind_it_costs_one_claim_in_so_many() -> None:
    store = Watched()
    bench = Bench(store)
    assert await flooded(bench, ONE_BY_ONE | {"ageing": 10}, {"high": 60}) == "h" * 60
    aged = [request.most_urgent for request in store.requests if request.claimer == "ageing"]
    assert aged == [4] * 6
    await store.close()
