"""A desk on a store of each engine, and clients of the SDK in both of its modes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.mcp.desk import Desk
from limpet.ops import Agents
from limpet.stores.base import Store
from tests.contract.harnesses import HARNESSES, SHARED
from tests.server.conftest import app_on


@pytest.fixture(params=SHARED)
async def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES[request.param](tmp_path)
    yield await harness.open()
    await harness.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    harness = HARNESSES["sqlite-file"](tmp_path)
    yield await harness.open()
    await harness.close()


def desk_on(store: Store, role: str = "admin") -> Desk:
    """For an agent with this role."""
    return Desk("mcp:test", role, store, app_on(store).client_on(store), Agents(store, "mcp:test"))  # type: ignore[arg-type]
