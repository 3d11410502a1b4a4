"""Servers of a test's own, and stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from limpet.stores.base import Store
from limpet.stores.open import open_store
from tests.releases import source_of
from tests.servers.flavours import REDIS
from tests.servers.redis import RedisServer, own


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server as people run it, on disk and flushed every second; for this test alone, which may kill it."""
    with own(REDIS, aof="everysec") as server:
        yield server


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[Store]:
    """A store on that server."""
    store = open_store(server.url)
    yield store
    await store.close()


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release before this one."""
    return source_of("v0.1.0", tmp_path_factory.mktemp("earlier"))
