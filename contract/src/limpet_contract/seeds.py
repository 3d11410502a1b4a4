"""Decides what tests draw at random: the same in every run, and something else for each LIMPET_SEED."""

from __future__ import annotations

import os
from random import Random

VARIABLE = "LIMPET_SEED"


def seed_of(usual: int) -> int:
    """The seed of a test whose own is `usual`: with LIMPET_SEED one that is derived from both.

    It is printed, and pytest shows what is printed by a test that fails.
    """
    said = os.environ.get(VARIABLE)
    seed = usual if said is None else Random(f"{said} {usual}").getrandbits(30)
    print(f"seed {seed}" if said is None else f"seed {seed}, by {VARIABLE}={said}")  # noqa: T201
    return seed


def chance_of(usual: int, part: str = "") -> Random:
    """What a test with this seed draws from; each `part` of it draws for itself."""
    seed = seed_of(usual)
    return Random(f"{seed} {part}") if part else Random(seed)
