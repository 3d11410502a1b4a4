"""The way of one job stays short: as many files touched, and files, hops and turns of its spine, and no more."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.arch.tree import ROOT

SAID = re.compile(
    r"(\d+) files touched.*spine of (\d+) files, (\d+) hops \(\d+ counted each time\), (\d+) turns", re.DOTALL
)
MOST = (32, 18, 24, 2)  # files touched; files, hops and turns of the spine


@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"])
def test_one_job_takes_no_detour(engine: str) -> None:
    command = [sys.executable, "tools/spine.py", engine]
    traced = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert traced.returncode == 0, traced.stderr
    found = SAID.search(traced.stdout)
    assert found is not None, traced.stdout
    too_many = [figure for figure, most in zip(map(int, found.groups()), MOST, strict=True) if figure > most]
    assert too_many == [], traced.stdout
