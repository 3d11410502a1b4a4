"""The wheel is all a user needs: built, put into a bare environment with what it declares, and used there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from limpet.core.version import VERSION
from tests.arch.tree import PACKAGE, ROOT
from tests.docs.pages import Reader

pytestmark = pytest.mark.timeout(600)  # building it takes some seconds on a machine that has nothing else to do


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """What a program of the bare environment says, without anything of ours in its surroundings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "PYTHON", "VIRTUAL"))}
    words = [str(word) for word in command]
    answer = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == code, f"{words}: {answer.returncode}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def needed(name: str) -> set[str]:
    """The distributions that `name` asks for, and those they ask for; extras and other platforms left out."""
    found: set[str] = set()
    for requirement in distribution(name).requires or ():
        what, _, marker = requirement.partition(";")
        other = re.split(r"[^\w.-]", what.strip())[0]
        if "extra ==" in marker or (marker and "platform_python_implementation" not in marker):
            continue
        found |= {other} | needed(other)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout without asking the network for anything."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it declares, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=home)
    (site,) = home.glob("lib/python*/site-packages")
    for name in needed("limpet"):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    return home / "bin"


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    written = {
        f"limpet/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == written
    assert "limpet/py.typed" in names
    assert "limpet/stores/sqlite/sql/schema_001.sql" in names


def test_the_wheel_and_what_it_declares_are_enough(bare: Path, tmp_path: Path) -> None:
    where = run(bare / "python", "-c", "import limpet; print(limpet.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(bare.parent)
    assert run(bare / "limpet", "--version", cwd=tmp_path).split() == ["limpet", VERSION]
    id = run(bare / "limpet", "enqueue", "hello.greet", '{"name": "Ada"}', cwd=tmp_path).strip()
    page = json.loads(run(bare / "limpet", "jobs", "--json", cwd=tmp_path))
    assert [(job["id"], job["state"]) for job in page["jobs"]] == [(id, "ready")]
    run(bare / "limpet", "doctor", cwd=tmp_path, code=11)  # no worker is alive, and it says so


def test_the_readme_works_with_the_wheel_alone(bare: Path, tmp_path: Path) -> None:
    assert Reader(tmp_path, bare).read(ROOT / "README.md") > 5
