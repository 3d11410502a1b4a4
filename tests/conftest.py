"""How hard the property tests look: a slice for every change, and ten times more for `make prove`."""

from __future__ import annotations

from hypothesis import settings

# No deadline: on a busy two-core machine a slow example says nothing about the code.
settings.register_profile("slice", deadline=None, print_blob=True)
settings.register_profile("full", deadline=None, print_blob=True, max_examples=1_000)
settings.load_profile("slice")
