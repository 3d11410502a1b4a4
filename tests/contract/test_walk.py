"""The random walk of a store beside the model, on every engine."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from limpet_contract.harness import Harness
from limpet_contract.stroll import stroll
from limpet_contract.walk import walk
from tests.contract.conftest import DAILY
from tests.contract.harnesses import HARNESSES
from tests.size import FULL, SEED, in_matrix

FEW = 12  # walks on PostgreSQL in a day: each takes half a second


@pytest.mark.timeout(600)  # a failure takes minutes to shrink, and the shortest way to it is worth them
@pytest.mark.parametrize("name", DAILY)
def test_a_store_and_the_model_agree_after_every_step(name: str, folder: Path) -> None:
    folders = (folder / str(number) for number in itertools.count())

    def harness() -> Harness:
        fresh = next(folders)
        fresh.mkdir()
        return HARNESSES[name](fresh)

    walk(harness, examples=None if FULL or SEED or name != "postgres" else FEW)


@pytest.mark.parametrize("seed", [0, *in_matrix("further seeds of the same walk", 1, 2)])
def test_a_store_and_the_model_agree_on_a_long_way(engine: Harness, seed: int) -> None:
    stroll(engine, seed)


@pytest.mark.parametrize("seed", [0, *in_matrix("further seeds of the same walk", 1)])
def test_limits_and_budgets_keep_their_books_on_a_long_way(engine: Harness, seed: int) -> None:
    stroll(engine, seed, limited=True)
