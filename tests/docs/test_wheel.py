"""The wheel is all a user needs: built, put into a bare environment with what it declares, and used there.

Every change is tried without extras and with all of them, on packages of this checkout; `make matrix` has pip install
the wheel with each extra.
"""

from __future__ import annotations

import email
import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from packaging.requirements import Requirement

from limpet.core.version import VERSION
from tests.arch.tree import PACKAGE, ROOT
from tests.docs.pages import Reader
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES
from tests.servers.postgres import fresh_database, shared
from tests.servers.redis import own

pytestmark = pytest.mark.timeout(600)  # building it takes some seconds on a machine that has nothing else to do

# The packages that each extra brings.
DRIVERS: Final = {
    "fast": {"uvloop"},
    "redis": {"hiredis"},
    "postgres": {"psycopg"},
    "server": {"prometheus-client", "starlette", "uvicorn"},
    "metrics": {"prometheus-client"},
    "otel": {"opentelemetry-api"},
    "sentry": {"sentry-sdk"},
    "agents": {"jsonschema"},
    "mcp": {"mcp"},
}
DRIVERS["all"] = set().union(*DRIVERS.values())
MODULES: Final = {  # others are named alike
    "opentelemetry-api": "opentelemetry.trace",
    "prometheus-client": "prometheus_client",
    "sentry-sdk": "sentry_sdk",
}


class Bare(NamedTuple):
    """The programs of an environment, and the extra that it was made with."""

    bin: Path
    extra: str


def run(*command: str | Path, cwd: Path, code: int = 0) -> str:
    """What a program of the bare environment says, without anything of ours in its surroundings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "PYTHON", "VIRTUAL"))}
    words = [str(word) for word in command]
    answer = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == code, f"{words}: {answer.returncode}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout


def needed(name: str, extras: Iterable[str] = ()) -> set[str]:
    """The distributions that `name` with these extras asks for on this platform, and those they ask for."""
    found: set[str] = set()
    for requirement in map(Requirement, distribution(name).requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            own = requirement.name == name  # `all` names the other extras
            found |= needed(requirement.name, requirement.extras) | (set() if own else {requirement.name})
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout without asking the network for anything."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def environment(home: Path) -> Path:
    """The programs of a fresh environment, which has no pip of its own."""
    venv.create(home, with_pip=False, symlinks=True)
    return home / "bin"


def install(bin: Path, *words: str | Path) -> None:
    """Have our pip install into another environment."""
    run(sys.executable, "-m", "pip", "--python", bin / "python", "install", "-q", *words, cwd=bin)


@pytest.fixture(scope="module", params=["", "all"], ids=["no-extra", "all"])
def bare(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """An environment that holds the wheel and what it declares, with an extra or without, and nothing else."""
    extra: str = request.param
    bin = environment(tmp_path_factory.mktemp(f"bare{extra}"))
    install(bin, "--no-deps", "--no-index", wheel)
    (site,) = bin.parent.glob("lib/python*/site-packages")
    for name in needed("limpet", [extra]):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    return Bare(bin, extra)


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


def test_the_wheel_says_what_each_extra_brings(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_bytes(archive.read(name))
    asked = [Requirement(text) for text in told.get_all("Requires-Dist", [])]

    def brought(extra: str) -> set[str]:
        return {one.name for one in asked if one.marker and one.marker.evaluate({"extra": extra})} - {"pysqlite3"}

    assert set(told.get_all("Provides-Extra", [])) == set(DRIVERS)
    assert {extra: brought(extra) for extra in DRIVERS} == DRIVERS


@pytest.mark.parametrize(
    ("platform", "machine", "python", "wanted"),
    [
        ("linux", "x86_64", "3.11", True),
        ("linux", "x86_64", "3.14", True),
        ("darwin", "arm64", "3.12", True),
        ("linux", "aarch64", "3.11", False),
        ("darwin", "x86_64", "3.13", False),
        ("linux", "x86_64", "3.15", False),
    ],
)
def test_pysqlite3_is_asked_for_only_where_it_has_a_wheel(
    platform: str, machine: str, python: str, wanted: bool
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = (one for one in map(Requirement, project["dependencies"]) if one.name == "pysqlite3")
    assert asked.marker is not None
    where = {"sys_platform": platform, "platform_machine": machine, "python_version": python}
    assert asked.marker.evaluate({**where, "platform_python_implementation": "CPython"}) is wanted


def test_the_wheel_and_what_it_declares_are_enough(bare: Bare, tmp_path: Path) -> None:
    where = run(bare.bin / "python", "-c", "import limpet; print(limpet.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(bare.bin.parent)
    assert run(bare.bin / "limpet", "--version", cwd=tmp_path).split() == ["limpet", VERSION]
    id = run(bare.bin / "limpet", "enqueue", "hello.greet", '{"name": "Ada"}', cwd=tmp_path).strip()
    page = json.loads(run(bare.bin / "limpet", "jobs", "--json", cwd=tmp_path))
    assert [(job["id"], job["state"]) for job in page["jobs"]] == [(id, "ready")]
    run(bare.bin / "limpet", "doctor", cwd=tmp_path, code=11)  # no worker is alive, and it says so
    assert importable(bare.bin, tmp_path) == DRIVERS.get(bare.extra, set())


@pytest.mark.parametrize("bare", [""], indirect=True, ids=["no-extra"])
def test_an_engine_without_its_extra_says_the_line_to_install_it(bare: Bare, tmp_path: Path) -> None:
    for url, extra in (("redis://127.0.0.1:1", "redis"), ("postgresql://127.0.0.1:1/db", "postgres")):
        words = [str(bare.bin / "limpet"), "jobs", "--url", url]
        answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert answer.returncode == 2
        assert f"pip install 'limpet[{extra}]'" in answer.stderr


def test_the_readme_works_with_the_wheel_alone(bare: Bare, tmp_path: Path) -> None:
    assert Reader(tmp_path, bare.bin).read(ROOT / "README.md") > 5


@pytest.mark.parametrize("bare", [""], indirect=True, ids=["no-extra"])
def test_the_first_day_is_as_the_pages_say(bare: Bare, tmp_path: Path) -> None:
    """Files and steps of the README and the tutorial, a worker that is killed, a dead letter and back, mistakes."""
    said = run(sys.executable, ROOT / "tools" / "first_day.py", "--bin", bare.bin, cwd=tmp_path)
    assert said.endswith("first day: as the pages say\n")
    assert "shop: charging order 42 job_id=" in said


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty store on a server."""
    if request.param == "postgres":
        yield fresh_database(shared(POSTGRES))
    else:
        with own(REDIS) as server:
            yield server.url


@pytest.mark.matrix("half a minute for each server; what engines differ in is guarded elsewhere")
@pytest.mark.parametrize("bare", ["all"], indirect=True)
def test_the_first_day_is_the_same_on_a_server(bare: Bare, url: str, tmp_path: Path) -> None:
    said = run(sys.executable, ROOT / "tools" / "first_day.py", "--bin", bare.bin, "--url", url, cwd=tmp_path)
    assert said.endswith("first day: as the pages say\n")


@pytest.mark.matrix("pip fetches every package again")
def test_the_first_day_begins_with_pip(tmp_path: Path) -> None:
    assert "pip install limpet" in run(sys.executable, ROOT / "tools" / "first_day.py", cwd=tmp_path)


@pytest.mark.matrix("pip fetches every package again, for each extra")
@pytest.mark.parametrize("extra", ["", *DRIVERS])
def test_pip_installs_the_wheel_with_each_extra(extra: str, wheel: Path, tmp_path: Path) -> None:
    bin = environment(tmp_path / "bare")
    named = f"limpet[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    install(bin, "--only-binary", ":all:", "--constraint", ROOT / "constraints.txt", named)
    folder = tmp_path / "work"
    folder.mkdir()
    assert run(bin / "limpet", "--version", cwd=folder).split() == ["limpet", VERSION]
    assert importable(bin, folder) == DRIVERS.get(extra, set())
    assert Reader(folder, bin).read(ROOT / "README.md") > 5


def importable(bin: Path, folder: Path) -> set[str]:
    """The packages of extras that an environment has."""
    wanted = {name: MODULES.get(name, name) for name in DRIVERS["all"]}
    code = (
        "from importlib.util import find_spec\n"
        f"for name, module in {wanted}.items():\n"
        "    if find_spec(module.partition('.')[0]) and find_spec(module): print(name)"
    )
    return set(run(bin / "python", "-c", code, cwd=folder).split())
