"""Servers of a test's own, and stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.stores.base import Store
from holdfast.stores.open import open_store
from tests.servers.redis import RedisServer, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server as people run it, on disk and flushed every second; for this test alone, which may kill it."""
    with running(RedisServer("redis-7", tmp_path / "redis", aof="everysec")) as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    """A store on that server."""
    store = open_store(server.url)
    yield store
    await store.close()
