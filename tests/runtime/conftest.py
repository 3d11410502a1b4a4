"""A bench on a real engine, in memory and on a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.stores.sqlite import SqliteStore
from tests.runtime.running import Bench


@pytest.fixture(params=["memory", "file"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench on each kind of store."""
    path = None if request.param == "memory" else str(tmp_path / "jobs.db")
    store = SqliteStore(path, sync="normal")
    yield Bench(store)
    await store.close()
