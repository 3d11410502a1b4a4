"""The SQLite library of a process: which one it is, and what is said where it can corrupt a file.

The switch LIMPET_SQLITE=stdlib makes this machine one without pysqlite3, as Linux on ARM64 is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from limpet.core.errors import InvalidOption, StoreError, UsageError
from limpet.core.jobs.view import Finding
from limpet.stores.open import open_store
from limpet.stores.sqlite import library
from limpet.stores.sqlite.check import promises, startup

FUTURE = (99, 0, 0)
SAFE = library.is_fixed(sqlite3.sqlite_version_info)  # the one that this Python is linked with
APP = """
from limpet import Limpet

app = Limpet()


@app.task
def which() -> str:
    from limpet.stores.sqlite.library import library

    return library.__name__
"""


def test_the_switch_names_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.SWITCH, "stdlib")
    assert library.load().__name__ == "sqlite3"
    monkeypatch.setenv(library.SWITCH, "apsw")
    with pytest.raises(InvalidOption, match="LIMPET_SQLITE is 'apsw'") as caught:
        library.load()
    assert caught.value.fix == "write stdlib or pysqlite3, or unset it"


def test_without_pysqlite3_the_standard_librarys_is_used_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pysqlite3.dbapi2", None)
    monkeypatch.delenv(library.SWITCH, raising=False)
    assert library.load().__name__ == "sqlite3"
    monkeypatch.setenv(library.SWITCH, "pysqlite3")
    with pytest.raises(UsageError, match="LIMPET_SQLITE is 'pysqlite3', which is not installed") as caught:
        library.load()
    assert caught.value.fix.startswith("pip install 'pysqlite3>=")


# -- a version with the bug: the library in use becomes one by moving the fix into the future


def of_library(path: str | None) -> Finding:
    (finding,) = (one for one in promises(path, "full") if one.code == "library")
    return finding


def test_a_version_with_the_bug_is_an_error_that_names_it_and_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "jobs.db")
    assert of_library(path).level == ("ok" if library.is_safe() else "error")
    monkeypatch.setattr(library, "FIXED_VERSION", FUTURE)
    finding = of_library(path)
    assert finding.level == "error"
    assert library.library.sqlite_version in finding.text
    assert "a Python that is linked with SQLite 3.51.3 or newer" in finding.fix
    assert "pip install 'pysqlite3>=0.6.1'" in finding.fix
    assert of_library(None).level == "ok", "memory has no write-ahead log"


async def test_a_start_with_the_bug_warns_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(library, "FIXED_VERSION", FUTURE)
    store = open_store(f"sqlite:///{tmp_path}/jobs.db?sync=normal")
    await store.count()  # a reader
    await store.expire()  # and the writer
    await store.close()
    (record,) = [record for record in caplog.records if record.name == "limpet.stores.sqlite"]
    assert record.levelno == logging.ERROR
    assert "WAL-reset bug" in record.getMessage()


async def test_a_strict_start_with_the_bug_is_refused_before_the_file_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FIXED_VERSION", FUTURE)
    store = open_store(f"sqlite:///{tmp_path}/jobs.db?strict=1")
    for _ in range(2):  # it stays refused
        with pytest.raises(StoreError, match=r"refused, because strict=1 and SQLite .* can corrupt the file") as caught:
            await store.count()
        assert "linked with SQLite 3.51.3" in caught.value.fix
    await store.close()
    assert not (tmp_path / "jobs.db").exists()


def test_a_strict_start_refuses_what_the_url_gave_up_and_no_more(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    startup(path, "normal", strict=False)
    with pytest.raises(StoreError, match="refused, because strict=1 and sync=normal"):
        startup(path, "normal", strict=True)
    with pytest.raises(StoreError, match="refused, because strict=1 and jobs are kept in memory"):
        startup(None, "full", strict=True)
    if library.is_safe():
        startup(path, "full", strict=True)


# -- the whole program with the standard library's


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "which.py").write_text(APP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    return {**kept, "LIMPET_URL": f"sqlite:///{tmp_path}/jobs.db", "LIMPET_SQLITE": "stdlib", "PWD": str(tmp_path)}


def run(where: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "limpet.cli", *words]
    return subprocess.run(command, cwd=where["PWD"], env=where, capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def working(where: dict[str, str]) -> Iterator[None]:
    worker = subprocess.Popen([sys.executable, "-m", "limpet.cli", "worker", "which:app"], cwd=where["PWD"], env=where)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_a_worker_runs_on_the_standard_librarys_sqlite(where: dict[str, str]) -> None:
    with working(where):
        ran = run(where, "enqueue", "which.which", "--app", "which:app", "--wait", "60")
    assert (ran.returncode, ran.stdout.splitlines()[1]) == (0, '"sqlite3"'), ran.stderr


def test_the_doctor_and_a_strict_worker_judge_the_standard_librarys_sqlite(where: dict[str, str]) -> None:
    assert run(where, "migrate").returncode == 0
    answer = msgspec.json.decode(run(where, "doctor", "--json").stdout)
    (finding,) = (one for one in answer["findings"] if one["code"] == "library")
    assert finding["text"].startswith(f"SQLite {sqlite3.sqlite_version} (sqlite3)")
    assert finding["level"] == ("ok" if SAFE else "error")
    if SAFE:
        return
    refused = run(where, "worker", "which:app", "--strict")
    assert refused.returncode == 1
    assert f"error: SQLite {sqlite3.sqlite_version} (sqlite3) can corrupt the file" in refused.stderr
    assert "--strict refuses" in refused.stderr
    strict = {**where, "LIMPET_URL": where["LIMPET_URL"] + "?strict=1"}
    refused = run(strict, "worker", "which:app")
    assert refused.returncode != 0
    assert "refused, because strict=1" in refused.stderr


def test_a_wrong_switch_is_told_with_its_value(where: dict[str, str]) -> None:
    ran = run({**where, "LIMPET_SQLITE": "stdlb"}, "migrate")
    assert ran.returncode == 2
    assert "LIMPET_SQLITE is 'stdlb'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_versions_that_are_mended_are_known() -> None:
    mended = [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 53, 0), (4, 0, 0)]
    assert [version for version in mended if not library.is_fixed(version)] == []
    affected = [(3, 7, 0), (3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 0), (3, 51, 2)]
    assert [version for version in affected if library.is_fixed(version)] == []
