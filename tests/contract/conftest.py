"""The engines that keep the contract: each behaviour runs once per harness."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.testing.harness import Harness
from tests.contract.harnesses import HARNESSES

MEMORY = Path("/dev/shm")

# Further versions of servers whose oldest version runs everything (Valkey does, too): of these `make test` runs one
# behaviour in three, and `make prove` (HOLDFAST_FULL=1) all.
SAMPLED = ("redis-7", "postgres-18")
ONE_IN = 1 if os.environ.get("HOLDFAST_FULL") else 3


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out two thirds of what runs on the sampled servers, always the same."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    named = item.name.partition("[")
    sampled = any(server in named[2] for server in SAMPLED) and "/contract/" in str(item.path)
    return sampled and zlib.crc32(item.nodeid.partition("[")[0].encode()) % ONE_IN != 0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one: the contract is about meaning, and disks are slow."""
    with TemporaryDirectory(prefix="hf-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=HARNESSES)
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One engine under test, on fresh ground."""
    return HARNESSES[request.param](folder)
