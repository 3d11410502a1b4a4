"""The tool that proves answers at full size, at a small one: it fills, asks, keeps its figures and writes a page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from bench.prove import __main__ as prove
from bench.prove.client import Answered, Taken
from bench.prove.page import Measured, page, verdict

QUICK, SLOW = Taken(5.0, 9.0, 12.0), Taken(150.0, 180.0, 200.0)


def answered(http: Taken) -> Answered:
    return Answered("jobs", "a scan", http, QUICK)


def measured(*answers: Answered) -> Measured:
    return Measured("redis", 1_000, 30, "today", "hiredis 3", {}, 1 << 30, answers)


@pytest.mark.sqlite
def test_a_small_run_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--engine", "sqlite", "--jobs", "300", "--calls", "2", "--figures", str(tmp_path)]
    assert prove.main([*words, "--page", str(tmp_path / "page.md")]) == 0
    (line, *_) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"prove: SQLite: 300 jobs enqueued in [\d.]+ s", line)
    text = (tmp_path / "page.md").read_text()
    assert text.startswith("# Asking beside 300 ready and 300 dead jobs\n")
    kept = msgspec.json.decode((tmp_path / "300" / "sqlite.json").read_bytes(), type=Measured)
    taken = r"[\d.]+ / [\d.]+ / [\d.]+"
    rows = re.findall(rf"^\| (.+) \| {taken} \| {taken} \| (?:met|missed).* \|$", text, re.MULTILINE)
    assert rows == [each.title for each in kept.answers]
    assert {"jobs, first page", "stats", "causes", "a dead job", "explain a dead job"} <= set(rows)


def test_the_verdict_is_on_the_unlucky_calls() -> None:
    assert verdict(answered(QUICK)) == "met"
    assert verdict(answered(Taken(60.0, 140.0, 150.0))) == "met by the median"
    assert verdict(answered(SLOW)) == "missed"


def test_what_misses_is_named_with_the_reason() -> None:
    assert "- *jobs* takes 150 ms in the middle: a scan." in page([measured(answered(SLOW), answered(QUICK))])
    assert "Everything is answered within 100 ms." in page([measured(answered(QUICK))])


def test_nothing_is_begun_without_room(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prove.main(["--jobs", str(10**12), "--figures", str(tmp_path)]) == 2
    assert re.search(r"\d+ MiB free in .*, \d+ MiB needed .*; SQLite was not measured", capsys.readouterr().err)
