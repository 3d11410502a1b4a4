"""Servers of a test's own, and stores on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from limpet.stores.base import Store
from limpet.stores.open import open_store
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
