"""The engines that keep the contract: each behaviour runs once per harness."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from limpet.testing.harness import Harness
from tests.contract.harnesses import HARNESSES

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one: the contract is about meaning, and disks are slow."""
    with TemporaryDirectory(prefix="limpet-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=HARNESSES)
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One engine under test, on fresh ground."""
    return HARNESSES[request.param](folder)
