"""The log of the real command: every line of a JSON log is JSON, and the app's own lines name their job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import JobDead, Limpet

HERE = Path(__file__).parent
APP = f"{HERE / 'noisy.py'}:app"


@pytest.fixture
def where(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    return {
        **kept,
        "LIMPET_URL": f"sqlite:///{tmp_path / 'jobs.db'}?sync=normal",
        "PYTHONWARNINGS": "default::UserWarning",
    }


@contextlib.contextmanager
def worker(where: dict[str, str], *options: str) -> Iterator[Path]:
    """A worker with this log on stderr, told to stop at the end of the block; the file that holds its log."""
    folder = Path(where["LIMPET_URL"].removeprefix("sqlite:///")).parent
    command = [sys.executable, "-m", "limpet.cli", "worker", APP, "--grace", "5s", *options]
    out = folder / "stdout"
    with (folder / "stderr").open("wb") as log, out.open("wb") as stdout:
        process = subprocess.Popen(command, env=where, stdout=stdout, stderr=log)
    try:
        yield folder / "stderr"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert set(out.read_text().splitlines()) <= {"printed at import"}


async def run_all(where: dict[str, str]) -> dict[str, str]:
    """Run a job of each task to its end; their ids by task."""
    async with Limpet(where["LIMPET_URL"]) as app:
        asked = {"shop.print": {"pages": 3}, "shop.crunch": {"n": 4}}
        jobs = {task: await app.enqueue(task, args) for task, args in asked.items()}
        jobs["shop.charge"] = await app.enqueue("shop.charge", {"card": "4242"}, retry=2)
        for job in jobs.values():
            with contextlib.suppress(JobDead):
                await job.result(timeout=60)
    return {task: job.id for task, job in jobs.items()}


def parsed(log: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]


async def test_every_line_of_a_json_log_is_json(where: dict[str, str]) -> None:
    with worker(where, "--log", "json", "--processes", "2", "--queues", "default,typo") as log:
        ids = await run_all(where)
    lines = parsed(log)
    assert {"at", "level", "logger", "process", "event"} <= set.intersection(*(set(line) for line in lines))
    found = {line["event"]: line for line in lines}
    banner = found["worker starts"]
    assert (banner["processes"], banner["queues"]) == (2, ["default", "typo"])
    assert [line["level"] for line in lines if "'typo'" in line["event"] or "power cut" in line["event"]] == [
        "warning"
    ] * 2
    for event, task in {
        "charging": "shop.charge",
        "printing 3 pages": "shop.print",
        "crunching": "shop.crunch",
        "job dead": "shop.charge",
    }.items():
        line = found[event]
        assert (line["task"], line["job_id"], line["queue"]) == (task, ids[task], "default")
    assert (found["charging"]["amount"], found["charging"]["attempt"]) == (12, 2)
    assert found["crunching"]["process"] != found["job dead"]["process"]
    assert found["job dead"]["traceback"].startswith("Traceback")
    assert "traceback" not in found["job failed, will retry"]
    warned = [line["event"] for line in lines if line["logger"] == "py.warnings"]
    assert {event.partition("\n")[0].rpartition(": ")[2] for event in warned} == {"warned at import", "warned of 4"}
    assert found["uncaught exception"]["error"].startswith("ZeroDivisionError")
    assert any("cannot be formatted" in event for event in found)
    assert found["worker ended"]["ending"] == "stopped"
    assert "4242" not in log.read_text()  # an argument


async def test_a_text_log_names_job_task_and_attempt_and_shows_retries_in_full_at_debug(where: dict[str, str]) -> None:
    with worker(where, "--log-level", "debug") as log:
        ids = await run_all(where)
    lines = log.read_text().splitlines()
    (second,) = [line for line in lines if " shop.noisy: charging" in line and line.endswith("attempt=2")]
    assert second.endswith(f"shop.noisy: charging job_id={ids['shop.charge']} task=shop.charge attempt=2")
    for event in ("job failed, will retry", "job dead"):
        at = next(number for number, line in enumerate(lines) if f": {event} " in line)
        assert lines[at].partition("error=")[2].startswith('"ConnectionError: refused"')
        assert lines[at + 1] == "  Traceback (most recent call last):"
    assert not any(line.startswith("INFO forged") for line in lines)


async def test_without_the_set_up_the_log_of_jobs_is_left_to_the_app(where: dict[str, str]) -> None:
    with worker(where, "--no-log-setup", "--log", "json") as log:
        async with Limpet(where["LIMPET_URL"]) as app:
            job = await app.enqueue("shop.crunch", {"n": 1})
            await job.result(timeout=60)
    said = log.read_text()
    assert '"event":"child ready"' in said  # of the supervisor, which does not import the app
    assert "crunching" not in said
    assert "job succeeded" not in said


def answer(where: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "limpet.cli", *words]
    return subprocess.run(command, env=where, capture_output=True, text=True, timeout=60, check=False).stdout


def until(where: dict[str, str], words: str) -> None:
    """Wait until `workers` says this: a worker tells it in a heartbeat of its own."""
    deadline_s = time.monotonic() + 60
    while words not in (said := answer(where, "workers")):
        assert time.monotonic() < deadline_s, said
        time.sleep(0.1)


async def test_a_handler_that_blocks_is_seen_while_it_does_and_afterwards(
    where: dict[str, str], tmp_path: Path
) -> None:
    done = tmp_path / "done"
    with worker(where, "--log", "json") as log:
        async with Limpet(where["LIMPET_URL"]) as app:
            job = await app.enqueue("shop.block", {"until": str(done)})
            until(where, "blocked for")
            waits = await app.enqueue("shop.print", {"pages": 1})
            assert "it blocks the loop of its worker" in answer(where, "explain", job.id)
            assert "is blocked for" in answer(where, "explain", waits.id)
            assert f"job {job.id} of task shop.block" in answer(where, "doctor", "-q")
            done.touch()
            await job.result(timeout=60)
            until(where, "was blocked 1×")
            assert "task shop.block has blocked the loop of its worker once" in answer(where, "doctor", "-q")
    told, free = [line for line in parsed(log) if line["event"] in ("loop blocked", "loop free again")]
    assert (told["event"], told["task"], told["job_id"]) == ("loop blocked", "shop.block", job.id)
    assert "in wait_badly" in told["stack"]
    assert (free["event"], free["job_id"]) == ("loop free again", job.id)
    assert free["blocked_ms"] > told["blocked_ms"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["no_such_module:app"], 2, "no module named"),
        ([APP, "--url", "sqlite://"], 2, "in memory"),
        ([APP, "--strict"], 1, "--strict refuses"),
        ([APP, "--bogus"], 2, "--bogus"),
        ([f"{HERE / 'unimportable.py'}:app"], 1, "not today"),
    ],
)
def test_a_refusal_is_a_line_of_a_json_log(where: dict[str, str], options: list[str], code: int, says: str) -> None:
    command = [sys.executable, "-m", "limpet.cli", "worker", *options]
    ran = subprocess.run(
        command, env={**where, "LIMPET_LOG": "json"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (code, "")
    lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in ran.stderr.splitlines()]
    assert says in lines[-1]["event"]
    assert {"at", "level", "logger", "process"} <= lines[-1].keys()


def test_with_json_asked_for_a_refusal_is_an_error_object(where: dict[str, str]) -> None:
    command = [sys.executable, "-m", "limpet.cli", "worker", APP, "--json", "--log", "json", "--bogus"]
    ran = subprocess.run(command, env=where, capture_output=True, text=True, timeout=60, check=False)
    assert msgspec.json.decode(ran.stderr)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("file", "environ", "flags", "level"),
    [
        ("", {}, [], "INFO"),
        ('[worker]\nlog_level = "warning"', {}, [], "WARNING"),
        ('[worker]\nlog_level = "warning"', {"LIMPET_LOG_LEVEL": "error"}, [], "ERROR"),
        ('[worker]\nlog_level = "warning"', {"LIMPET_LOG_LEVEL": "error"}, ["debug"], "DEBUG"),
    ],
)
def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    file: str, environ: dict[str, str], flags: list[str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limpet.cli.logs import log_settings
    from limpet.core.settings import parse_settings

    monkeypatch.delenv("LIMPET_LOG_LEVEL", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    table = parse_settings(__import__("tomllib").loads(file), "limpet.toml").worker
    assert log_settings(None, next(iter(flags), None), table, setup=True, otherwise="INFO").level == level
