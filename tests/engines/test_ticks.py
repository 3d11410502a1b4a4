"""Days of schedules on every engine: workers die and wake at odd times, clocks change, and every tick fires once."""

from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.view import Retention
from limpet.core.schedules.history import KEPT, kind_of, read_ticks
from limpet.core.schedules.plan import tick_job
from limpet.core.schedules.schedule import Schedule
from limpet.core.schedules.when import Cron, Every, Once
from limpet.core.tasks.task import TaskSpec
from limpet.core.text.duration import instant_ms, iso
from limpet.runtime.patient_store import PatientStore
from limpet.runtime.ticker import Ticker
from limpet.stores.base import Store
from limpet_contract.bench import Bench
from limpet_contract.harness import Harness
from limpet_contract.seeds import chance_of
from tests.contract.harnesses import HARNESSES, SHARED
from tests.size import in_matrix

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BERLIN = "Europe/Berlin"
WORKERS = 4
DEATHS = 0.01  # of a worker, at each of its calls
LOOK_MS = 20 * MINUTE  # they look when a tick is due, and so often besides


class Killed(BaseException):
    """The process is no more."""


class Mortal:
    """A store whose owner may die at any call: before it is sent, or when it is done and not yet answered."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        if not inspect.iscoroutinefunction(member):
            return member

        async def verb(*args: object, **options: object) -> object:
            if self._rng.random() < DEATHS:
                raise Killed
            answer = await member(*args, **options)
            if self._rng.random() < DEATHS:
                raise Killed
            return answer

        return verb


class Worker:
    """One worker's ticker, on a machine that wakes it too early or too late."""

    def __init__(self, world: World, store: Store) -> None:
        self.world = world
        self.store = store
        self.look_at_ms = 0.0
        self.deaths = 0
        self._ticker = self._born()

    def _born(self) -> Ticker:
        rng = self.world.rng
        self._early_ms = rng.choice((5_000, 0, 0, -200, -40_000, -3 * MINUTE))
        mortal = cast(Store, Mortal(self.store, rng))
        clock = self.world.bench.clock
        tasks = {"work": TaskSpec.named("work")}
        return Ticker(
            PatientStore(mortal, rng), self.world.code, tasks, rng, look_ms=LOOK_MS, clock=lambda: clock.now_ms
        )

    async def look(self) -> None:
        now_ms = self.world.bench.clock.now_ms
        try:
            wait_ms = await self._ticker.look()
        except Killed:
            self.deaths += 1
            self._ticker = self._born()
            wait_ms = self.world.rng.uniform(0, HOUR)
        self.look_at_ms = now_ms + max(1_000 if self._early_ms else 1, int(wait_ms) - self._early_ms)


class World:
    """A store, workers on it, and time that passes from one look to the next.

    Runs are soon over and forgotten, so that only the marks know which ticks have fired.
    """

    def __init__(self, bench: Bench, code: list[Schedule], seed: int) -> None:
        self.bench = bench
        self.code = code
        self.rng = chance_of(seed)
        self.workers: list[Worker] = []
        self.runs: list[Claimed] = []
        self._hand = bench.hand(ttl_ms=DAY)
        self._worked_at_ms = 0

    async def hire(self, harness: Harness) -> None:
        self.workers = [Worker(self, await harness.reopen(self.bench.store)) for _ in range(WORKERS)]

    async def live(self, until_ms: int) -> None:
        """Let time pass: whoever wants to look does, those of one instant at once."""
        while True:
            at_ms = math.ceil(min(worker.look_at_ms for worker in self.workers))
            if at_ms >= until_ms:
                break
            self.bench.clock.now_ms = max(self.bench.clock.now_ms, at_ms)
            now_ms = self.bench.clock.now_ms
            await asyncio.gather(*(worker.look() for worker in self.workers if worker.look_at_ms <= now_ms))
            if now_ms > self._worked_at_ms + HOUR:
                await self.work()
        self.bench.clock.now_ms = until_ms

    async def work(self) -> None:
        """Run what has been fired, and forget it."""
        self._worked_at_ms = now_ms = self.bench.clock.now_ms
        while jobs := await self._hand.claim(500):
            self.runs += jobs
            await self._hand.succeed(*jobs)
        while await self.bench.store.prune(Retention(succeeded_ms=0), now_ms=now_ms + 1):
            pass

    def all_die_until(self, at_ms: int) -> None:
        for worker in self.workers:
            worker.look_at_ms = at_ms + self.rng.uniform(0, MINUTE)


@pytest.fixture(params=SHARED)
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    harness = HARNESSES[request.param](tmp_path)
    yield harness
    await harness.close()


def in_berlin(text: str) -> int:
    return instant_ms(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(BERLIN)))


SPRING, AUTUMN = in_berlin("2027-03-27 12:00"), in_berlin("2027-10-30 12:00")
CODE = [
    Schedule.declare(Cron("30 2 * * *", tz=BERLIN, overlap="allow", catch_up="all"), task="work", name="night"),
    Schedule.declare(Cron("*/15 * * * *", tz=BERLIN, overlap="allow", catch_up="all"), task="work", name="quarters"),
    Schedule.declare(Every("40m", overlap="allow", catch_up="all", jitter="10m"), task="work", name="spread"),
    Schedule.declare(Once(datetime.fromisoformat("2027-03-28T03:00+02:00"), overlap="allow"), task="work", name="once"),
]
# On the day that leaves 02:30 out it comes with the jump, and on the day that has it twice it comes the first time. The
# two days in spring have 47 hours, those in autumn 49.
NIGHTS = {SPRING: ["2027-03-28 03:00", "2027-03-29 02:30"], AUTUMN: ["2027-10-31 02:30", "2027-11-01 02:30"]}
QUARTERS = {SPRING: 47 * 4, AUTUMN: 49 * 4}


@pytest.mark.parametrize("seed", [1, *in_matrix("further seeds of the same world", *range(2, 9))])
@pytest.mark.parametrize("start", [SPRING, AUTUMN], ids=["spring", "autumn"])
async def test_every_tick_fires_once_over_days_with_kills_and_a_clock_change(
    engine: Harness, start: int, seed: int
) -> None:
    bench = await Bench.open(engine)
    bench.clock.now_ms = start
    world = World(bench, CODE, seed)
    await world.hire(engine)
    end = in_berlin("2027-03-29 12:00" if start == SPRING else "2027-11-01 12:00")
    await world.live(start + 13 * HOUR)
    world.all_die_until(start + 16 * HOUR)  # nobody is there when the clocks change
    await world.live(end - 3 * HOUR)
    world.all_die_until(end - MINUTE)
    await world.live(end + 2 * HOUR)

    await world.work()
    assert await bench.everything() == []
    times = Counter(job.id for job in world.runs)
    fired: dict[str, list[int]] = {}
    for schedule in CODE:
        ticks = schedule.rule.between(start, end + 2 * HOUR, 10_000)
        seen = [tick for tick in ticks for _ in range(times.pop(tick_job(schedule.name, tick), 0))]
        assert sorted(set(seen)) == seen, f"{schedule.name} has fired a tick twice"
        missing = [iso(tick) for tick in ticks if tick not in seen and tick < end + HOUR]
        assert missing == [], f"{schedule.name} has missed ticks"
        fired[schedule.name] = [tick for tick in seen if tick <= end]
    assert times == {}, "a job that is no tick"
    assert fired["night"] == [in_berlin(text) for text in NIGHTS[start]]
    assert len(fired["quarters"]) == QUARTERS[start]
    assert len(fired["once"]) == (start == SPRING)
    assert sum(worker.deaths for worker in world.workers) > WORKERS, "too few kills to prove anything"
    for job in world.runs:
        # Nothing was early by the engine's clock, whatever the workers' own showed.
        tick_at_ms = int.from_bytes(job.id[:6], "big")
        assert tick_at_ms <= job.due_at_ms <= tick_at_ms + 10 * MINUTE
        assert job.enqueued_at_ms >= job.due_at_ms
    await history_is_true(bench, fired["quarters"])


async def history_is_true(bench: Bench, fired: list[int]) -> None:
    """A kill may leave a gap in what is remembered; what is there is true."""
    kept = read_ticks(await bench.store.controls(kind_of("quarters")))
    assert KEPT // 2 < len(kept) <= KEPT
    assert all(tick.fired for tick in kept)
    assert {tick.at_ms for tick in kept if tick.at_ms <= fired[-1]} <= set(fired)


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "cancel_running"])
async def test_one_run_at_a_time_whoever_fires_it(engine: Harness, overlap: str) -> None:
    """Tickers that race at the very same instants and die anywhere; a run takes three ticks of its schedule."""
    bench = await Bench.open(engine)
    bench.clock.now_ms = SPRING
    minutely = Schedule.declare(Every("1m", overlap=overlap, catch_up="all"), task="work", name="minutely")
    world = World(bench, [minutely], seed=3)
    await world.hire(engine)
    hand = bench.hand(ttl_ms=HOUR)
    running: list[Claimed] = []
    ran = 0
    for minute in range(60):
        bench.clock.now_ms = SPRING + minute * MINUTE
        await asyncio.gather(*(worker.look() for worker in world.workers))
        running += await hand.claim(100)
        assert len(running) <= 1
        if minute % 3 == 2 and running:
            await hand.drop(running.pop())
            ran += 1
    assert ran >= 18
    assert sum(worker.deaths for worker in world.workers) > WORKERS
    await bench.check_books()
