"""Successes are logged in batches: only a kill loses a line, none stands twice, and all others are there at once."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from textwrap import dedent

import pytest

from limpet.core.jobs.job import Lane, Policy
from limpet.core.jobs.lease import Claimed
from limpet.runtime import log_writer
from limpet.runtime.log import job_log, job_succeeded, worker_log
from limpet.runtime.log_setup import LogSettings, Style, setup_logging
from limpet.runtime.log_writer import SUCCESS

AT_S = 1_700_000_000.123
JOB = Claimed(
    id=bytes(range(16)),
    token=7,
    attempt=2,
    lost=0,
    lane=Lane("mail", "shop.send"),
    policy=Policy(),
    args=b"{}",
    enqueued_at_ms=0,
    due_at_ms=0,
    claimed_at_ms=0,
)


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    ours = logging.getLogger("limpet")
    before = list(ours.handlers), ours.propagate, ours.level
    yield
    ours.handlers[:], ours.propagate = before[0], before[1]
    ours.setLevel(before[2])


@pytest.fixture
def _one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: AT_S)


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    (handler,) = logging.getLogger("limpet").handlers
    handler.flush()
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.usefixtures("_one_instant")
def test_a_success_has_the_line_that_its_record_would_have(style: Style, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogSettings(style))
    job_succeeded(JOB, 12)
    job_log(logging.INFO, SUCCESS, JOB, duration_ms=12)
    deferred, recorded = written(capsys)
    assert deferred == recorded
    assert SUCCESS in deferred


def test_a_handler_of_the_app_gets_a_record_of_every_success(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogSettings("json"))
    seen: list[logging.LogRecord] = []

    class Theirs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    theirs = Theirs()
    logging.getLogger("limpet").addHandler(theirs)
    job_succeeded(JOB, 12)
    logging.getLogger("limpet").removeHandler(theirs)
    assert [record.__dict__["limpet"]["task"] for record in seen] == ["shop.send"]
    assert [json.loads(line)["duration_ms"] for line in written(capsys)] == [12]


def test_any_other_line_is_written_at_once_with_all_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogSettings("json"))
    job_succeeded(JOB, 1)
    worker_log(logging.INFO, "worker started")
    lines = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert lines == [SUCCESS, "worker started"]


def test_a_log_that_is_read_slowly_keeps_few_lines_waiting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "MOST_WAITING", 3)
    monkeypatch.setattr(log_writer, "FLUSH_S", 3_600)  # the thread does not come to it
    setup_logging(LogSettings("json"))
    for duration_ms in range(6):
        job_succeeded(JOB, duration_ms)
    there = [json.loads(line)["duration_ms"] for line in capsys.readouterr().err.splitlines()]
    assert there == [0, 1, 2, 3]
    assert [json.loads(line)["duration_ms"] for line in written(capsys)] == [4, 5]


def test_where_no_thread_can_be_started_a_success_is_written_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    setup_logging(LogSettings("json"))
    for duration_ms in range(2):
        job_succeeded(JOB, duration_ms)
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_lines_of_several_processes_are_not_torn_in_a_full_pipe() -> None:
    program = """
        import sys
        from limpet.runtime.log import job_succeeded
        from limpet.runtime.log_setup import LogSettings, setup_logging
        from tests.runtime.test_log_writer import JOB
        setup_logging(LogSettings("json"))
        print("ready", flush=True)
        sys.stdin.read()
        for number in range(5_000):
            job_succeeded(JOB, number)
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-c", dedent(program)]
    with ExitStack() as stack:
        start = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing)
        writers = [stack.enter_context(start(text=True)) for _ in range(3)]
        os.close(writing)
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:  # all at the same time
            assert writer.stdin is not None
            writer.stdin.close()
        with open(reading, "rb", buffering=0) as log:
            read = []
            while piece := log.read(512):  # more slowly than they write
                read.append(piece)
    lines = [json.loads(line)["duration_ms"] for line in b"".join(read).splitlines()]
    assert sorted(lines) == sorted(list(range(5_000)) * 3)


def run(program: str) -> list[int]:
    """The durations of the successes that a program has logged."""
    begin = """
        import os
        from limpet.runtime.log import job_succeeded
        from limpet.runtime.log_setup import LogSettings, setup_logging
        from tests.runtime.test_log_writer import JOB
        setup_logging(LogSettings("json"))
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(begin) + dedent(program)], capture_output=True, text=True, timeout=120, check=True
    )
    return [json.loads(line)["duration_ms"] for line in done.stderr.splitlines()]


def test_the_last_lines_are_written_when_the_program_ends() -> None:
    assert run("job_succeeded(JOB, 7)") == [7]


def test_a_line_is_written_without_another_one_after_it() -> None:
    assert run(
        """
        import sys, threading
        written, flush = threading.Event(), sys.stderr.flush
        def heard():
            flush()
            written.set()
        sys.stderr.flush = heard
        job_succeeded(JOB, 7)
        assert written.wait(60)
        os._exit(0)
        """
    ) == [7]


def test_a_copy_of_the_process_writes_its_own_lines_alone() -> None:
    assert sorted(
        run(
            """
            job_succeeded(JOB, 1)
            copy = os.fork()
            if copy == 0:
                job_succeeded(JOB, 2)
            else:
                os.waitpid(copy, 0)
            """
        )
    ) == [1, 2]


def test_a_line_with_a_long_traceback_fits_into_one_write_to_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging(LogSettings("json"))
    traceback = "\n".join(f'  File "shop/tasks.py", line {number}, in charge' for number in range(1_000))
    job_log(logging.ERROR, "job dead", JOB, error="x" * 500, traceback=traceback)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < log_writer.IN_PIPE_BYTES or sys.platform != "linux"
    assert json.loads(line)["traceback"].endswith("line 999, in charge")
