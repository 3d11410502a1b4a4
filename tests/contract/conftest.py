"""The engines that keep the contract: each behaviour runs once per harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.harness import Harness
from tests.contract.harnesses import HARNESSES


@pytest.fixture(params=HARNESSES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    """One engine under test, on fresh ground."""
    return HARNESSES[request.param](tmp_path)
