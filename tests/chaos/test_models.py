"""Eight worker processes at a provider's two limits: nearly all that it allows is used, and next to nothing refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.conftest import on

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "models.py"


@on("sqlite", why="the arithmetic is in the contract; this is about what workers ask for")
@pytest.mark.timeout(900)
def test_eight_workers_use_what_a_provider_allows_and_are_hardly_ever_refused(url: str) -> None:
    command = [sys.executable, str(EXAMPLE), "--seconds", "8"]
    env = {**os.environ, "LIMPET_URL": url}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=170, check=False)
    assert ran.returncode == 0, ran.stderr
    said = re.fullmatch(
        r"(\d+) calls: (\d+) accepted, (\d+) refused\n"
        r"of what was allowed: ([\d.]+)% of the requests, ([\d.]+)% of the tokens\n",
        ran.stdout,
    )
    assert said is not None, ran.stdout
    calls, accepted, refused = (int(said[n]) for n in (1, 2, 3))
    assert calls == accepted + refused >= 250, ran.stdout
    # A quiet machine refuses none and uses 98 %; a busy one holds calls up between claim and provider.
    assert refused <= calls * 0.05, ran.stdout
    assert max(float(said[4]), float(said[5])) >= 90, ran.stdout  # of the limit that is reached first
