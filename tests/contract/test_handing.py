"""Behaviours of engines that hand off, on each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet_contract.behaviours import handing
from limpet_contract.harness import Harness
from tests.contract.harnesses import HANDING, HARNESSES

# The same as `from limpet_contract.behaviours.handing import *`, in a form that linters can follow.
globals().update({name: getattr(handing, name) for name in handing.__all__})


@pytest.fixture(params=HANDING)
def engine(request: pytest.FixtureRequest, folder: Path) -> Harness:
    """One engine that hands off, on fresh ground."""
    return HARNESSES[request.param](folder)
