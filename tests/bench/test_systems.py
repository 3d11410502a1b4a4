"""Peers are columns where they are installed, and each adapter can do what its column promises."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from bench import systems as rooms
from bench.driver import System
from bench.ground import sqlite
from bench.peers import adapter
from bench.systems import systems
from bench.targets import ROWS, Engine
from tests.arch.tree import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
ENGINES = get_args(Engine)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in which nothing is installed."""
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def full(bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One in which every peer seems to be, as the Makefile puts them there."""
    for peer in re.findall(r"^\.bench/(\w+)/\.ready", MAKEFILE, re.MULTILINE):
        for program in ("bin/python", "ruby", "node_modules/bullmq"):
            place = bare / ".bench" / peer / program
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    monkeypatch.setattr("shutil.which", lambda _: str(bare / "node"))
    (bare / "node").touch()
    return bare


def peers(engine: Engine) -> list[System]:
    return [system for system in systems(engine) if system.role == "peer"]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_not_installed_is_no_column(engine: Engine) -> None:
    assert peers(engine) == []
    assert [system.role for system in systems(engine)] == ["ours", "ours", "floor"]


@pytest.mark.usefixtures("full")
def test_what_the_makefile_installs_is_a_column() -> None:
    columns = {system.name for engine in ENGINES for system in peers(engine)}
    assert columns == set(re.findall(r"^\.bench/(\w+)/\.ready", MAKEFILE, re.MULTILINE))


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("engine", ENGINES)
def test_targets_compare_with_columns(engine: Engine) -> None:
    named = {name for row in ROWS if engine in row.targets for name in row.targets[engine].beside}
    assert named <= {system.name for system in systems(engine)}


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("engine", ENGINES)
def test_an_adapter_can_do_what_its_column_promises(engine: Engine) -> None:
    for system in peers(engine):
        text = (ROOT / "bench" / "peers" / Path(system.command[1]).name).read_text()
        able = set(re.findall(r"^(?:async )?(?:def|function) (\w+)", text, re.MULTILINE))
        assert system.measures <= able, system.name


def test_an_adapter_says_which_releases_it_is_made_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["with_peer.py", "versions", "{}"])
    adapter.main("with_peer.py", {}, ("pytest", "not-a-package"))
    assert capsys.readouterr().out == f'{{"pytest": "{pytest.__version__}"}}\n'


def test_the_driver_asks_for_them() -> None:
    program = 'import sys; print(\'{"peer": "%s"}\' % sys.argv[1])'
    system = System("peer", (sys.executable, "-c", program), frozenset(), sqlite(), role="peer")
    assert system.versions("sqlite") == {"peer": "versions"}


def test_jobs_that_ran_in_threads_are_counted() -> None:
    run = adapter.Countdown()
    run.expect(2)
    assert [run.count(), run.count()] == [False, True]
    run.wait()
    assert run.over_s > 0
