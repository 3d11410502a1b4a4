"""Knows how large a run is: the slice of every day, or what `make matrix` asks for in the environment."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

FULL: Final = bool(os.environ.get("LIMPET_FULL"))  # full sizes, and everything that is marked for the matrix
MATRIX: Final = FULL or bool(os.environ.get("LIMPET_MATRIX"))  # everything that is marked for the matrix
SEED: Final = os.environ.get("LIMPET_SEED")  # where random tests begin, instead of where they always begin


def in_matrix(why: str, *values: Any) -> list[Any]:
    """Further values of a parameter that only the matrix tries, and why a day does without them."""
    return [pytest.param(value, marks=pytest.mark.matrix(why)) for value in values]
