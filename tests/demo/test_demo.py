"""The demo tells the truth: it keeps its numbers, survives its own death, and fails when a number is wrong."""

from __future__ import annotations

import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.demo.stage import SMALL, Ended, Running, workers_of

pytestmark = pytest.mark.timeout(600)  # 15 s on a machine that has nothing else to do


def kept(ended: Ended) -> dict[str, Any]:
    """The summary, after the checks that hold however often a demo was killed."""
    assert ended.code == 0, ended.err
    summary = ended.summary
    jobs, effects = summary["jobs"], summary["effects"]
    assert summary["wrong"] == []
    assert jobs["enqueued"] == jobs["planned"] == jobs["succeeded"] + jobs["dead"] + jobs["discarded"]
    assert (jobs["lost"], jobs["unfinished"], jobs["cancelled"]) == (0, 0, 0)
    assert effects["recorded"] == jobs["succeeded"]
    assert (effects["lost"], effects["duplicated"], effects["unexpected"]) == (0, 0, 0)
    assert summary["dead_letters"] == {"before": 14, "corrected": 8, "discarded": 2, "after": 4}
    assert summary["breaker_openings"] >= 1
    assert summary["breaker"][-1]["closed_s"] is not None
    assert summary["workers"]["attempts_spent_by_kills"] == 0
    return summary


def test_a_killed_driver_is_finished_by_another(tmp_path: Path, whole: tuple[Path, Running]) -> None:
    """Beside the whole demo of the next test: both spend most of their time waiting for a lease to end."""
    with Running(tmp_path, "--scale", SMALL) as first:
        first.until("SIGKILL for all of")
        first.kill()
    summary = kept(Running(tmp_path, "--resume").ended())
    assert summary["resumed"] == 1
    assert summary["workers"]["killed"] >= 2
    until_none_is_left(tmp_path)


def test_a_demo_keeps_every_promise_and_sees_a_lost_effect(whole: tuple[Path, Running]) -> None:
    folder, running = whole
    summary = kept(running.ended())
    workers, waits = summary["workers"], summary["waits_ms"]
    assert (summary["resumed"], workers["terminated"], workers["killed"]) == (0, 1, 2)
    assert waits["emails"]["p50"] < waits["greedy_tenant"]["p50"]
    assert waits["small_tenants"]["p95"] < waits["greedy_tenant"]["p95"]
    assert workers_of(folder) == []

    ledger = sqlite3.connect(folder / ".demo" / "effects.db")
    with ledger:
        ledger.execute("DELETE FROM effect WHERE rowid = (SELECT min(rowid) FROM effect)")
    ledger.close()
    ended = Running(folder, "--resume").ended()
    assert ended.code == 1
    assert ended.summary["wrong"] == ["effects lost: 1, should be 0"]


def test_ctrl_c_stops_the_workers_and_says_how_to_go_on(tmp_path: Path) -> None:
    with Running(tmp_path, "--scale", SMALL) as running:
        running.until("worker 2 starts")
        running.process.send_signal(signal.SIGINT)
        running.until("limpet demo --resume")
        assert running.ended().code == 130
        assert workers_of(tmp_path) == []


def test_a_folder_has_one_driver_and_its_workers_end_with_it(tmp_path: Path) -> None:
    with Running(tmp_path, "--scale", SMALL) as first:
        first.until("worker 2 starts")
        with Running(tmp_path, "--resume") as other:
            second = other.ended()
        assert second.code == 2
        assert "another demo is running" in second.err
        assert workers_of(tmp_path) != []
        first.kill()
    until_none_is_left(tmp_path)


def until_none_is_left(folder: Path) -> None:
    """Workers notice by themselves that their driver was killed, and end."""
    deadline_s = time.monotonic() + 60
    while workers_of(folder):
        assert time.monotonic() < deadline_s, "workers outlive their driver"
