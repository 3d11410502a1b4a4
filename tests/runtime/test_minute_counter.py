"""What a worker counts of the last minute: forgotten in slices, and said at once when it is asked."""

from __future__ import annotations

import asyncio

import msgspec

from limpet.core.jobs.lease import SessionView
from limpet.core.jobs.minute import Minute
from limpet.core.jobs.state import State
from limpet.runtime.minute_counter import AttemptCounter, MinuteCounter
from tests.ops.making import claim, job, put
from tests.runtime.running import Bench


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_minute_is_remembered_and_no_more(bench: Bench) -> None:
    await put(bench.store, job())
    (one,) = await claim(bench.store)
    clock = Clock()
    minute = MinuteCounter(counter := AttemptCounter(), clock)
    for _ in range(12):
        counter.ended(one, "succeeded", 0.5)
        clock.now_s += 5
        minute.said()
    whole = minute.said()
    assert (whole.seconds, whole.tasks["send"].ended) == (60.0, {"succeeded": 12})
    assert sum(whole.tasks["send"].runs.values()) == sum(whole.tasks["send"].waits.values()) == 12
    clock.now_s += 30
    assert minute.said().tasks["send"].total == 7
    clock.now_s += 60
    assert minute.said().tasks == {}


async def test_only_ends_of_its_own_say_how_long_a_task_takes(bench: Bench) -> None:
    await put(bench.store, job())
    (one,) = await claim(bench.store)
    minute = MinuteCounter(counter := AttemptCounter(), Clock())
    for counted in ("retried", "dead", "released", "snoozed", "suspended", "held", "lost", "cancelled"):
        counter.ended(one, counted, 1.0)
    tally = minute.said().tasks["send"]
    assert tally.total == 8
    assert sum(tally.runs.values()) == 2


async def test_a_worker_says_it_in_its_beats(bench: Bench) -> None:
    async def fine() -> None: ...

    async def bad() -> None:
        raise ValueError("bad address")

    good, failing = bench.task(fine), bench.task(bad)
    ids = [await bench.put(good) for _ in range(3)]
    ids.append(await bench.put(failing))
    stop = asyncio.Event()
    work = asyncio.create_task(bench.worker({"beat_ms": 20}).run(stop))
    try:
        await bench.until(ids[:3], State.succeeded)
        await bench.until(ids[3:], State.dead)
        async with asyncio.timeout(60):
            while (minute := said(await bench.store.sessions())) is None or len(minute.tasks) < 2:
                pass  # a beat says it soon
    finally:
        stop.set()
        await work
    assert minute.tasks["fine"].ended == {"succeeded": 3}
    assert minute.tasks["bad"].ended == {"dead": 1}


def said(sessions: list[SessionView]) -> Minute | None:
    for session in sessions:
        return msgspec.convert(msgspec.json.decode(session.info)["last_minute"], Minute, strict=False)
    return None
