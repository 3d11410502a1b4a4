"""The bank of examples/bank.py, killed before every round trip to its server: no money is made, lost or moved twice.

With LIMPET_FULL=1 (`make matrix`) before each of them; else before every fifth.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import psycopg
import pytest

from limpet.core.jobs.state import State
from limpet.stores.open import open_store
from limpet_contract.bench import SWEEP_MS, Bench
from limpet_contract.harness import Clock
from tests.chaos.banking import Life
from tests.chaos.nursery import Nursery
from tests.contract.harnesses import EMPTY
from tests.servers.installations import POSTGRES
from tests.servers.postgres import bury, fresh_database, shared
from tests.size import FULL

pytestmark = pytest.mark.postgres

EVERY = 1 if FULL else 5
END = ([("ada", 80), ("bob", 120)], [(1, "done"), (2, "done"), (3, "refused")])


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with closing(Nursery("tests.chaos.banking")) as nursery:
        yield nursery


def books(url: str) -> tuple[list[tuple[str, int]], list[tuple[int, str]]]:
    """What is on the accounts, and what became of the transfers."""
    with psycopg.connect(url, autocommit=True) as conn:
        accounts = conn.execute("SELECT name, balance FROM account ORDER BY name").fetchall()
        transfers = conn.execute("SELECT id, state FROM transfer ORDER BY id").fetchall()
    return accounts, transfers


def close_bank(url: str) -> None:
    """Nothing is left but empty tables: to make them anew takes longer than a life."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("TRUNCATE account, transfer")
        conn.execute(EMPTY.replace("SCHEMA", "limpet"))


async def leases_run_out(url: str) -> None:
    """What a janitor does when the worker is silent, without the wait."""
    store = open_store(url)
    bench = Bench(store, Clock())
    healer = bench.hand("healer")
    for _ in range(60):
        if not (await store.count()).total(State.running):
            break
        await bench.sweep(SWEEP_MS, healer)
    await healer.leave()
    await bench.check_books()
    await store.close()


@pytest.mark.timeout(900)
async def test_money_is_conserved_wherever_the_bank_dies(nursery: Nursery) -> None:
    url = fresh_database(shared(POSTGRES))
    assert await asyncio.to_thread(nursery.live, Life(url)) == 0
    assert books(url) == END
    moved = 0
    for number in count(1, EVERY):
        close_bank(url)
        code = await asyncio.to_thread(nursery.live, Life(url, number))
        if code == 0:
            assert books(url) == END  # it has fewer steps than that
            break
        assert code == -signal.SIGKILL
        await asyncio.to_thread(bury, url)
        accounts, transfers = books(url)
        assert sum(balance for _, balance in accounts) in (0, 200), f"money after a kill before step {number}"
        moved += any(state == "done" for _, state in transfers)
        await leases_run_out(url)
        assert await asyncio.to_thread(nursery.live, Life(url)) == 0
        assert books(url) == END, f"after a kill before step {number}"
    assert number > 25, "it has more steps than that"
    assert moved, "it never died after a transfer"
