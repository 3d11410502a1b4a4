"""A checkout installs the same everywhere: pins for all it needs, and no machine's addresses in the files."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

from limpet.core.version import VERSION
from tests.arch.tree import ROOT, named, written_files

# Written with a class in each name, so that this file does not name them either.
REGISTRIES = re.compile(r"(?i)pypi[.](org|io)|python[h]osted|npm[j]s|npm[m]irror|(extra-)?index-[u]rl|find-[l]inks")
PIN = re.compile(r"([a-z0-9][a-z0-9-]*)==[\w.+!]+")


def pins() -> dict[str, str]:
    """The lines of constraints.txt by name."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    found = {line: PIN.fullmatch(line) for line in lines}
    assert [line for line, match in found.items() if match is None] == []
    return {match.group(1): line for line, match in found.items() if match is not None}


def test_everything_pyproject_asks_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in wanted}
    own = {project["project"]["name"]}  # the extra `all` names the others
    assert sorted(names - pins().keys()) == sorted(own)


def test_no_file_names_a_package_registry() -> None:
    bad = []
    for path in written_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        bad += [f"{named(path)}: {match.group()}" for match in REGISTRIES.finditer(text)]
    assert bad == []


def test_the_release_has_one_number() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION


def test_make_says_what_each_target_does() -> None:
    answer = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = set(re.findall(r"^  (\w+) +\w", answer.stdout, re.MULTILINE))
    assert {"help", "demo", "quick", "test", "matrix", "check", "bench", "web"} <= listed


def test_ci_runs_what_people_run() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("exec make test")
