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
TRIES = 3  # a starved machine may take a detour in each job of a run; one of the code is in every run
MOST = (32, 18, 24, 2)  # files touched; files, hops and turns of the spine


@pytest.mark.parametrize("engine", ["sqlite", "redis", "postgres"])
def test_one_job_takes_no_detour(engine: str) -> None:
    for _ in range(TRIES):
        traced = subprocess.run(
            [sys.executable, "tools/spine.py", engine],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert traced.returncode == 0, traced.stderr
        found = SAID.search(traced.stdout)
        assert found is not None, traced.stdout
        if not [figure for figure, most in zip(map(int, found.groups()), MOST, strict=True) if figure > most]:
            return
    raise AssertionError(traced.stdout)
