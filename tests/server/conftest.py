"""The HTTP API over a real store: on SQLite, or on each engine for those who ask for `everywhere`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet import Limpet
from limpet.core.settings import ServerTable
from limpet.server import Api
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.server.asking import Client

GENEROUS = ServerTable(rate="1000000/s")  # tests ask faster than people


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES["sqlite-file"](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.fixture(params=SHARED)
async def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each engine."""
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


def app_on(store: Store) -> Limpet:
    """An app without tasks of its own, on a store that is open."""
    app = Limpet("sqlite://")
    app._connection._open_store = lambda: store
    return app


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    """A client on this machine, without a token: an admin."""
    async with Api(app_on(store), settings=GENEROUS, local=True).lifespan() as api:
        yield Client(api)
