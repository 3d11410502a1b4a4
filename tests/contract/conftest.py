"""The engines that keep the contract: each behaviour runs once per harness."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from limpet_contract.harness import Harness
from tests.contract.harnesses import HARNESSES
from tests.size import in_matrix

MEMORY = Path("/dev/shm")
# A file is what people use, with a connection for readers and one for the writer; memory has one for both.
DAILY = ["sqlite-file", "redis", "postgres", *in_matrix("memory is the file's code on one connection", "sqlite-memory")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A fresh folder, in memory where there is one: the contract is about meaning, and disks are slow."""
    with TemporaryDirectory(prefix="limpet-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield Path(name)


@pytest.fixture(params=DAILY)
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One engine under test, on fresh ground."""
    return HARNESSES[request.param](folder)
