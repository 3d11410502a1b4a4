"""Grounds of each kind, and a store to relay to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from limpet.stores.sqlite import SqliteStore
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.outbox.ground import Ground
from tests.servers.installations import POSTGRES
from tests.servers.postgres import fresh_database, shared

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one: these tests are about meaning, and disks are slow."""
    with TemporaryDirectory(prefix="limpet-outbox-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture
async def sqlite_ground(folder: Path) -> AsyncIterator[Ground]:
    """The user's database in a file, with an outbox."""
    ground = Ground(f"sqlite:///{folder}/app.db?sync=normal")
    await ground.table().create()
    yield ground
    await ground.close()


@pytest.fixture
async def postgres_ground() -> AsyncIterator[Ground]:
    """The user's database on a server, with an outbox."""
    ground = Ground(fresh_database(shared(POSTGRES)))
    await ground.table().create()
    yield ground
    await ground.close()


@pytest.fixture(params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Each of them in turn."""
    found: Ground = request.getfixturevalue(f"{request.param}_ground")
    return found


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """The store that is relayed to."""
    store = SqliteStore(None)
    bench = Bench(store, Clock())
    yield bench
    await bench.check_books()
    await store.close()
