"""How hard the tests look: a slice that gives the same answer every time, and everything for `make matrix`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.interrupts import heed_interrupts, same_process
from tests.size import FULL, MATRIX, SEED

# No deadline: on a busy two-core machine a slow example says nothing about the code, nor about how it is drawn.
PATIENT: Final = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("slice", PATIENT, derandomize=True, database=None)
settings.register_profile("full", PATIENT, max_examples=1_000, derandomize=True, database=None)
settings.register_profile("explore", PATIENT, max_examples=300)
settings.load_profile("full" if FULL else "slice" if SEED is None else "explore")

heed_interrupts()  # a run in the background of a script ignores Ctrl-C, and its programs would, too

ENGINES: Final = ("sqlite", "redis", "postgres")


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """Every test begins with the signals and the levels of logs that the first one had."""
    with same_process():
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test with the engines it needs, and leave to the matrix what is marked so."""
    for item in items:
        for mark in (*engines_of(item), *(["random"] if is_random(item) else [])):
            item.add_marker(mark)
    if MATRIX:
        return
    left_out = [item for item in items if item.get_closest_marker("matrix")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def is_random(item: pytest.Item) -> bool:
    """Whether LIMPET_SEED makes it another test: it has a seed among its parameters, or kills at random."""
    if not isinstance(item, pytest.Function):
        return False
    return "field" in item.fixturenames or (hasattr(item, "callspec") and "seed" in item.callspec.params)


def engines_of(item: pytest.Item) -> set[str]:
    """The engines that a test is about: by its folder, by its parameters, by a mark of its file."""
    folder, _, ways = item.nodeid.partition("[")
    named = {engine for engine in ENGINES if f"tests/engines/{engine}/" in folder or item.get_closest_marker(engine)}
    return named | {engine for engine in ENGINES if re.search(rf"\b{engine}", ways)}
