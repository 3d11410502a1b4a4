"""The agent of examples/agent.py, killed wherever a worker can die: no recorded step runs twice, each is paid once.

It dies before and after each record of a step, and with LIMPET_FULL=1 (`make matrix`) at everything else that its
worker asks of the store, too; else at every ninth.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import JobView
from limpet.core.tasks.task import build_job
from limpet.ops import Waits
from limpet.stores.base import Store
from limpet.stores.open import open_store
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.harness import Clock
from tests.chaos.conftest import on
from tests.chaos.field import Field, kill
from tests.chaos.nursery import Nursery
from tests.chaos.paying import Steps
from tests.chaos.writing import AGENT, PATIENT, Life, live, tasks
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import bury, fresh_database
from tests.servers.postgres import shared as postgres
from tests.servers.redis import shared as redis
from tests.size import FULL

EVERY = 1 if FULL else 9
KILLS = 8
PAID_STEPS = {"outline", "facts", "quotes", "draft", "review"}
END = b'"(review (draft with (facts for (outline bees)) and (quotes for (outline bees))))"'

# Engine → where a test's stores are: for the n-th of them, a URL and a namespace.
Place = Callable[[int], tuple[str, str]]
PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": lambda folder: lambda number: (f"sqlite:///{folder}/{number}.db?sync=normal", "default"),
    "redis": lambda folder: partial(_namespace, redis(REDIS).url, f"agent{os.getpid()}-{time.monotonic_ns()}-"),
    "postgres": lambda folder: partial(_namespace, fresh_database(postgres(POSTGRES)), "n"),
}

# Where an agent dies: at every call of the store, or at its records alone.
DEATHS = [
    *((engine, "save") for engine in PLACES),
    ("sqlite", ""),
    pytest.param("redis", "", marks=pytest.mark.matrix("what else a worker calls is the same on every engine")),
    pytest.param("postgres", "", marks=pytest.mark.matrix("what else a worker calls is the same on every engine")),
]


def _namespace(url: str, prefix: str, number: int) -> tuple[str, str]:
    return url, f"{prefix}{number}"


class Bill(Struct, frozen=True):
    """What the provider has taken money for, and how often it was asked, by key."""

    paid: dict[str, int]
    asked: dict[str, int]

    def of(self, id: bytes) -> Bill:
        """The part of one job, by step."""
        job = f"{id_text(id)}:"
        return Bill(
            {key.removeprefix(job): paid for key, paid in self.paid.items() if key.startswith(job)},
            {key.removeprefix(job): asked for key, asked in self.asked.items() if key.startswith(job)},
        )


class Provider:
    """examples/provider.py as a process of its own: nobody kills it."""

    def __init__(self) -> None:
        command = [sys.executable, str(AGENT.with_name("provider.py"))]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def bill(self) -> Bill:
        with urllib.request.urlopen(f"{self.url}/bill", timeout=30) as answer:
            return msgspec.json.decode(answer.read(), type=Bill)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with closing(Provider()) as provider:
        yield provider


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with closing(Nursery("tests.chaos.writing")) as nursery:
        yield nursery


async def asked(life: Life, task: str = "agent.write") -> bytes:
    """A store with one job; its id."""
    store = open_store(life.url, life.namespace)
    await store.open()
    id = await put(store, task)
    await store.close()
    return id


async def put(store: Store, task: str = "agent.write") -> bytes:
    values = {} if task == PATIENT else {"topic": "bees"}
    job, rules = build_job(tasks()[task], values, id=IdMaker().make(time.time_ns() // 1_000_000))
    await store.enqueue([job], rules)
    return job.id


def recorded(view: JobView) -> set[str]:
    return {note.name for note in view.notes if note.kind == "step"}


async def leases_run_out(life: Life, id: bytes) -> JobView:
    """What a janitor does when the worker is silent, without the wait; the job as it is then."""
    if life.url.startswith("postgresql:"):
        await asyncio.to_thread(bury, life.url)
    store = open_store(life.url, life.namespace)
    bench = Bench(store, Clock())
    healer = bench.hand("healer")
    for _ in range(60):
        if await bench.state(id) is not State.running:
            break
        await bench.sweep(SWEEP_MS, healer)
    await healer.leave()
    await bench.check_books()
    view = await bench.view(id)
    await store.close()
    return view


async def is_written(life: Life, id: bytes, bill: Bill, paid: set[str] = PAID_STEPS, end: bytes = END) -> None:
    """The job has succeeded, and each of its steps was paid once, under its own key."""
    store = open_store(life.url, life.namespace)
    (view,) = await store.get([id])
    await store.close()
    assert view is not None
    assert (view.state, view.result) == (State.succeeded, end)
    assert recorded(view) >= paid
    assert bill.paid == dict.fromkeys(paid, 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("engine", "only"), DEATHS)
async def test_no_recorded_step_runs_twice_wherever_the_worker_dies(
    engine: str, only: str, nursery: Nursery, provider: Provider, folder: Path
) -> None:
    place = PLACES[engine](folder)
    kept: set[int] = set()  # how many steps were recorded when it died
    unrecorded = 0  # deaths between a payment and its record
    for number in count(1, 1 if only else EVERY):
        life = Life(*place(number), provider.url, number, only)
        id = await asked(life)
        code = await asyncio.to_thread(nursery.live, life)
        if code == 0:
            await is_written(life, id, provider.bill().of(id))  # it has fewer steps than that
            break
        assert code == -signal.SIGKILL
        try:
            view = await leases_run_out(life, id)
            before = provider.bill().of(id)
            done = recorded(view)
            assert before.paid.keys() >= done, "a step is recorded that nobody has paid for"
            await live(life, Steps())
            after = provider.bill().of(id)
            assert {step: after.asked[step] for step in done} == {step: before.asked[step] for step in done}
            await is_written(life, id, after)
        except AssertionError as error:
            raise AssertionError(f"it died before step {number}: {error}") from error
        kept.add(len(done))
        unrecorded += len(before.paid) > len(done)
    if only:
        assert number == 11  # before and after each of five records
        assert kept >= {0, 1, 3, 4, 5}
        assert unrecorded >= 4, "it hardly died between a payment and its record"
    assert provider.bill().paid.keys() == provider.bill().asked.keys()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", PLACES)
async def test_a_job_that_is_suspended_goes_on_wherever_the_worker_dies(
    engine: str, nursery: Nursery, provider: Provider, folder: Path
) -> None:
    """It sleeps and asks between two paid steps; the decision comes when it has asked, or before."""
    place = PLACES[engine](folder)
    for number in count(1, EVERY):
        life = Life(*place(number), provider.url, number)
        id = await asked(life, PATIENT)
        ahead = number % 2 == 0
        if ahead:
            await approve(life, id)
        code = await asyncio.to_thread(nursery.live, life)
        assert code in (0, -signal.SIGKILL)
        try:
            await leases_run_out(life, id)
            await live(life, Steps())
            if not ahead:
                await approve(life, id)
            await live(life, Steps())
            bill = provider.bill().of(id)
            end = b'"((outline bees), approved by ada)"'
            await is_written(life, id, bill, {"outline", "review"}, end)
        except AssertionError as error:
            raise AssertionError(f"it died before step {number}: {error}") from error
        if code == 0:
            break  # it has fewer steps than that


async def approve(life: Life, id: bytes) -> None:
    store = open_store(life.url, life.namespace)
    assert (await Waits(store, "ada").approve(id, name="approval")).answer in ("woken", "kept")
    await store.close()


@on("postgres", why="test_no_recorded_step_runs_twice kills at each record on every engine")
async def test_agents_that_are_killed_at_random_pay_for_each_step_once(
    field: Field, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_URL", provider.url)
    monkeypatch.setenv("AGENT_URL", field.url)
    start = partial(field.start, app=f"{AGENT}:app", processes=2, concurrency=4)
    workers, ids = [start(), start()], list[bytes]()
    for _ in range(KILLS):
        paid = len(provider.bill().paid)
        ids += [await put(field.store) for _ in range(8)]  # so that there is work for every kill
        await field.until("further steps are paid", partial(has_paid, provider, paid + 5))
        await asyncio.sleep(field.rng.uniform(0, 0.1))
        place = field.rng.randrange(2)
        victim = field.rng.choice(workers[place].tree())
        kill(victim)
        if victim == workers[place].pid:
            await workers[place].ended()
            workers[place] = start()
    await field.finished(len(ids))
    assert {view.state for view in await field.views(ids)} == {State.succeeded}
    bill = provider.bill()
    assert [bill.of(id).paid for id in ids] == [dict.fromkeys(PAID_STEPS, 1)] * len(ids)
    assert len(bill.paid) == 5 * len(ids)


def has_paid(provider: Provider, steps: int) -> bool:
    return len(provider.bill().paid) >= steps
