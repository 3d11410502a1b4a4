"""Knows how large a run is: the slice of every day, or everything (LIMPET_FULL=1, as in `make matrix`)."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

FULL: Final = bool(os.environ.get("LIMPET_FULL"))
SEED: Final = os.environ.get("LIMPET_SEED")  # where random tests begin elsewhere, as the matrix does


def in_matrix(why: str, *values: Any) -> list[Any]:
    """Further values of a parameter that only the matrix tries, and why a day does without them."""
    return [pytest.param(value, marks=pytest.mark.matrix(why)) for value in values]
