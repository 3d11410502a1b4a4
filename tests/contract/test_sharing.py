"""Behaviours of shared stores, on every engine that other processes can open."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet_contract.behaviours import sharing
from limpet_contract.harness import Harness
from tests.contract.harnesses import HARNESSES, SHARED

# The same as `from limpet_contract.behaviours.sharing import *`, in a form that linters can follow.
globals().update({name: getattr(sharing, name) for name in sharing.__all__})


@pytest.fixture(params=SHARED)
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One shared engine under test, on fresh ground."""
    return HARNESSES[request.param](folder)
