"""A handler that writes its own rows and completes its job in one transaction has its effects once, wherever it dies.

Its worker is killed before every step that it takes: each call of the store, each statement of the store and of the
handler. An engine that joins callers' transactions takes part with a line in GROUNDS and one in PLACES.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
import pytest

from limpet.core.jobs.ids import IdMaker
from limpet.core.jobs.state import State
from limpet.core.tasks.task import build_job
from limpet.stores.open import open_store
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.harness import Clock
from tests.chaos.nursery import Nursery
from tests.chaos.paying import GROUNDS, PAID, Life, Steps, live, task_of
from tests.servers.installations import POSTGRES
from tests.servers.postgres import bury, fresh_database, shared
from tests.size import in_matrix

# Engine → where a test's stores are: for the n-th of them, a URL and a namespace.
Place = Callable[[int], tuple[str, str]]
PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": lambda folder: lambda number: (f"sqlite:///{folder}/{number}.db?sync=normal", "default"),
    "postgres": lambda folder: partial(_in_one_database, fresh_database(shared(POSTGRES))),
}


def _in_one_database(url: str, number: int) -> tuple[str, str]:
    return url, f"n{number}"


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with closing(Nursery("tests.chaos.paying")) as nursery:
        yield nursery


async def asked(life: Life) -> bytes:
    """A store with one job, and the handler's own table beside it; the job's id."""
    store = open_store(life.url, life.namespace)
    await store.open()
    with closing(GROUNDS[life.ground].connect(life.url, Steps())) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS payment (what TEXT)")
        conn.execute("DELETE FROM payment")
        conn.commit()
    job, rules = build_job(task_of(life, Steps()), {}, id=IdMaker().make(time.time_ns() // 1_000_000))
    await store.enqueue([job], rules)
    await store.close()
    return job.id


def is_paid(life: Life) -> bool:
    """Whether the handler's transaction was committed, which must be whole, and once."""
    with closing(GROUNDS[life.ground].connect(life.url, Steps())) as conn:
        rows = [row[0] for row in conn.execute("SELECT what FROM payment ORDER BY what")]
    assert rows in ([], ["payment", "receipt"]), rows
    return bool(rows)


async def leases_run_out(life: Life, id: bytes) -> State:
    """What a janitor makes of it; the state of the job when nobody holds it any more."""
    store = open_store(life.url, life.namespace)
    bench = Bench(store, Clock())
    healer = bench.hand("healer")
    for _ in range(60):
        if await bench.state(id) is not State.running:
            break
        await bench.sweep(SWEEP_MS, healer)
    await bench.check_books()
    state = await bench.state(id)
    await store.close()
    return state


async def is_paid_once(life: Life, id: bytes) -> None:
    store = open_store(life.url, life.namespace)
    bench = Bench(store, Clock())
    view = await bench.view(id)
    assert (view.state, view.result) == (State.succeeded, msgspec.json.encode(PAID))
    assert is_paid(life)
    await bench.check_books()
    await store.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("executor", ["async", *in_matrix("a thread makes the same calls", "thread")])
@pytest.mark.parametrize("ground", PLACES)
async def test_effects_happen_once_wherever_the_worker_dies(
    ground: str, executor: str, nursery: Nursery, folder: Path
) -> None:
    place = PLACES[ground](folder)
    died: list[bool] = []  # with the payment committed?
    for number in count(1):
        life = Life(ground, *place(number), executor, number)
        id = await asked(life)
        code = await asyncio.to_thread(nursery.live, life)
        if code == 0:
            await is_paid_once(life, id)  # it has fewer steps than that
            break
        assert code == -signal.SIGKILL
        if ground == "postgres":
            await asyncio.to_thread(bury, life.url)
        try:
            paid = is_paid(life)
            died.append(paid)
            state = await leases_run_out(life, id)
            assert (state is State.succeeded) == paid, "whoever takes it back must know what was committed"
            await live(life, Steps())
            await is_paid_once(life, id)
        except AssertionError as error:
            raise AssertionError(f"it died before step {number}: {error}") from error
    assert died.count(False) > 5, "it hardly died before the commit"
    assert died.count(True) > 5, "it hardly died after the commit"
