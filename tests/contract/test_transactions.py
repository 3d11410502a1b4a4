"""Behaviours of stores that join callers' own transactions, on every engine that does, in every way to reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from limpet_contract.behaviours import transactions
from limpet_contract.harness import Transactional
from tests.contract.visited import VISITED
from tests.size import in_matrix

# The same as `from limpet_contract.behaviours.transactions import *`, in a form that linters can follow.
globals().update({name: getattr(transactions, name) for name in transactions.__all__})

DAILY = ("sqlite-file-by-the-driver", "postgres-psycopg", "postgres-asyncpg")
WAYS = [*DAILY, *in_matrix("tests/stores has what every driver makes of a statement", *sorted(VISITED.keys() - DAILY))]


@pytest.fixture(params=WAYS)
def engine(request: pytest.FixtureRequest, folder: Path) -> Transactional:
    """One engine under test, on fresh ground, and one way to reach its database."""
    return VISITED[request.param](folder)
