"""What a supervisor makes of a dead child, and what a child leaves for it to read."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import tempfile
from pathlib import Path

import pytest

from limpet.core.endings.transition import Lose, Release
from limpet.core.jobs.lease import Held
from limpet.runtime.child_messages import CUT_OFF, FAILED, STOPPED, Ready
from limpet.runtime.child_process import ChildProcess
from limpet.runtime.child_recovery import verdict
from limpet.runtime.log_format import JsonLines
from limpet.runtime.roster import Roster, Started, kept_ms
from limpet.runtime.settings import WorkerSettings
from limpet.runtime.supervisor import Supervisor, SupervisorSettings

A, B = b"a" * 16, b"b" * 16


def test_a_roster_tells_what_was_started_and_where() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(Roster.size(8))
        child, supervisor = Roster(file.fileno(), 8), Roster(file.fileno(), 8)
        child.start(A, 7, "inside")
        child.start(B, 8, "isolated")
        assert list(supervisor.started()) == [Started(A, 7, "inside"), Started(B, 8, "isolated")]
        child.end(A, 7)
        child.end(A, 7)
        child.end(A, 6)  # handed back before it started: it has no line
        assert list(supervisor.started()) == [Started(B, 8, "isolated")]
        child.start(A, 9, "inside")
        assert len(list(supervisor.started())) == 2
        child.turn()
        child.beat(kept_ms())
        assert supervisor.silent_ms() < 10_000
        assert supervisor.beaten_ms() < 10_000
        child.runs_in(B, 8, 4_711)
        assert next(supervisor.started()) == Started(A, 9, "inside")
        assert Started(B, 8, "isolated", 4_711) in supervisor.started()
        child.runs_in(B, 8, 0)
        assert Started(B, 8, "inside") in supervisor.started()
        supervisor.beat_for(12)
        assert child.beaten_for_at_ms() == 12
        child.close()
        supervisor.close()


def test_a_roster_that_overflows_says_so() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(Roster.size(1))
        child, supervisor = Roster(file.fileno(), 1), Roster(file.fileno(), 1)
        seen = []
        for id in (A, B):
            child.start(id, 1, "inside")
            seen.append(supervisor.complete)
        assert seen == [True, False]
        child.close()
        supervisor.close()


@pytest.mark.parametrize(
    ("lost", "started", "expected"),
    [
        (0, [], Release(A, 7)),
        (0, [Started(A, 6, "inside")], Release(A, 7)),  # an older lease of the same job
        (0, [Started(A, 7, "isolated")], Lose(A, 7, False, "the worker process died (signal 9)")),
        (2, [Started(A, 7, "isolated")], Lose(A, 7, False, "the worker process died (signal 9)")),
        (0, [Started(A, 7, "inside")], Lose(A, 7, False, "the worker process died (signal 9)")),
        (2, [Started(A, 7, "inside")], Lose(A, 7, True, "the worker process died (signal 9)")),
        (
            2,
            [Started(A, 7, "inside"), Started(B, 8, "inside")],
            Lose(A, 7, False, "the worker process died (signal 9)"),
        ),
    ],
)
def test_a_dead_childs_jobs_are_judged_by_what_they_were_doing(
    lost: int, started: list[Started], expected: Release | Lose
) -> None:
    by_lease = {(each.id, each.token): each for each in started}
    assert verdict(Held(A, 7, lost), by_lease, "signal 9") == expected


def test_a_json_line_carries_the_fields_of_the_event() -> None:
    record = logging.LogRecord("limpet.worker", logging.INFO, "", 0, "job succeeded task=x", (), None)
    record.limpet = {"event": "job succeeded", "task": "x", "duration_ms": 3}
    line = JsonLines().format(record)
    assert '"event":"job succeeded","task":"x","duration_ms":3' in line
    plain = logging.LogRecord("limpet.worker", logging.INFO, "", 0, "just text", (), None)
    assert '"event":"just text"' in JsonLines().format(plain)


async def test_a_late_beat_before_the_supervisor_has_a_store_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard_ready, beat_ms = ChildProcess.heard_ready, 20

    async def heard_late(child: ChildProcess) -> Ready | None:
        ready = await heard_ready(child)
        os.kill(child.pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while child.roster.beaten_ms() < 10 * beat_ms:  # noqa: ASYNC110  # several looks later
                await asyncio.sleep(0.001)
        os.kill(child.pid, signal.SIGCONT)
        return ready

    monkeypatch.setattr(ChildProcess, "heard_ready", heard_late)
    settings = SupervisorSettings(
        app_ref="tests.cli.shop:app",
        path=(str(Path.cwd()),),
        url=f"sqlite:///{tmp_path / 'jobs.db'}",
        worker=WorkerSettings(beat_ms=beat_ms),
    )
    supervisor = Supervisor(settings, lambda child: supervisor.stop())
    assert await supervisor.run() == STOPPED


@pytest.mark.parametrize("app", ["tests.cli.shop:app", "tests.cli.nowhere:app"])
async def test_five_children_in_a_row_that_end_without_a_job_end_the_command(tmp_path: Path, app: str) -> None:
    settings = SupervisorSettings(app_ref=app, path=(str(Path.cwd()),), url=f"sqlite:///{tmp_path / 'jobs.db'}")
    seen: set[int] = set()

    def kill(child: ChildProcess) -> None:
        seen.add(child.pid)
        child.kill()

    assert await Supervisor(settings, kill).run() == FAILED
    assert len(seen) == (5 if app == "tests.cli.shop:app" else 0)


async def test_a_child_that_waits_for_its_store_is_not_taken_for_a_hung_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SupervisorSettings(
        app_ref="tests.cli.shop:app",
        path=(str(Path.cwd()),),
        url=f"sqlite:///{tmp_path / 'nowhere' / 'jobs.db'}",
        silent_ms=2_500,
        worker=WorkerSettings(cut_off_ms=4_000),
    )
    assert await Supervisor(settings).run() == CUT_OFF
    assert "silent" not in caplog.text
