"""A store in a real file and an operator over it; jobs are made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from limpet.ops import Operator
from limpet.stores.sqlite import SqliteStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "jobs.db"), sync="normal")
    yield store
    await store.close()


@pytest.fixture
def operator(store: SqliteStore) -> Operator:
    return Operator(store, "ada")
