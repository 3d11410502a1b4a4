"""The floor stores and tells for real: a commit for each enqueue, and another process that is told of each message."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest

from bench import ground
from bench.driver import System
from bench.systems import systems
from bench.targets import FLOOR, Engine
from tests.size import in_matrix


def floor_of(engine: Engine) -> System:
    (found,) = (system for system in systems(engine) if system.name == FLOOR)
    return found


@pytest.mark.parametrize("engine", ["sqlite", "redis", *in_matrix("the same way on a slow server", "postgres")])
def test_another_process_is_told_of_each_message(engine: Engine) -> None:
    # The measure itself asserts that what is told is what was sent.
    assert floor_of(engine).run("latency", {"jobs": 3}).keys() == {"p50_ms", "p95_ms", "p99_ms"}


def test_each_enqueue_is_committed(tmp_path: Path) -> None:
    floor = floor_of("sqlite")
    place = ground.sqlite("?sync=normal")
    kept = System(FLOOR, floor.command, floor.measures, lambda _: place(tmp_path), role="floor")
    assert kept.run("single", {"jobs": 3}).keys() == {"jobs_per_s", "each_us"}
    with closing(sqlite3.connect(tmp_path / "jobs0.db")) as conn:
        assert conn.execute("SELECT stamp FROM floor ORDER BY id").fetchall() == [(b"0",), (b"0",), (b"1",), (b"2",)]


@pytest.mark.parametrize("engine", get_args(Engine))
def test_the_floor_is_of_the_setting_that_the_verdicts_are_on(engine: Engine) -> None:
    first = systems(engine)[0]
    assert (first.role, floor_of(engine).role) == ("ours", "floor")
    assert floor_of(engine).measures == {"latency", "single"} < first.measures


def test_the_floor_says_which_library_it_stands_on() -> None:
    assert {"psycopg"} <= floor_of("postgres").versions("postgres").keys()
    assert {"SQLite"} <= floor_of("sqlite").versions("sqlite").keys()
