"""Earlier releases, from this repository's own history: their sources, and their commands."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
# By the commit and not by the tag: a clone may come without tags.
COMMITS: Final = {"v0.1.0": "06e12957797781d91e90e89e4a1c1d86ae443ea1"}


def source_of(release: str, folder: Path) -> Path:
    """A release as it was, unpacked into `folder`: its `src` is what PYTHONPATH takes."""
    commit = COMMITS[release]
    if not (ROOT / ".git").exists():
        pytest.skip(f"these sources came without the history that has {release}")
    if _git("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode:
        if _git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
            pytest.skip(f"a shallow clone, without {release} ({commit[:12]}): git fetch --unshallow")
        pytest.fail(f"{release} ({commit}) is not in this repository")
    packed = _git("archive", commit, "src", "tests/chaos/start_worker.py").stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def limpet(source: Path, *words: str) -> str:
    """A command of a release; what it printed."""
    command = [sys.executable, "-c", "import limpet.cli as cli; raise SystemExit(cli.main())", *words]
    env = {**os.environ, "PYTHONPATH": str(source / "src")}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def _git(*words: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=check)
