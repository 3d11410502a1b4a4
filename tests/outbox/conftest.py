"""Grounds of each kind, and a store to relay to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.bench import Bench
from holdfast.testing.harness import Clock
from tests.outbox.ground import Ground
from tests.servers.postgres import fresh_database, shared


@pytest.fixture
async def sqlite_ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """The user's database in a file, with an outbox."""
    ground = Ground(f"sqlite:///{tmp_path}/app.db?sync=normal")
    await ground.table().create()
    yield ground
    await ground.close()


@pytest.fixture
async def postgres_ground() -> AsyncIterator[Ground]:
    """The user's database on a server, with an outbox."""
    ground = Ground(fresh_database(shared("postgres-16")))
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
