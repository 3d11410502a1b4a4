"""What Sentry hears of jobs: one event for each that is dead, none for a retry, and no secret."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from limpet import Limpet
from limpet.core.errors import JobDead
from limpet.integrations.sentry import frames_of

WITHIN_S = 90.0
CARD = "4242-4242-4242"


async def reported(folder: Path, by: str, jobs: dict[str, dict[str, str]], events: int) -> list[dict[str, Any]]:
    """Run jobs in a worker until they have ended, and Sentry has been told of so many events."""
    file = folder / "events"
    file.touch()
    url = f"sqlite:///{folder / 'jobs.db'}?sync=normal"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LIMPET_")}
    env = {**kept, "LIMPET_URL": url, "REPORTED_FILE": str(file), "REPORTED_BY": by}
    command = ("-m", "limpet.cli", "worker", "tests.integrations.reported:app", "--log-level", "warning")
    worker = await asyncio.create_subprocess_exec(sys.executable, *command, env=env)
    ended, gone = asyncio.create_task(told(url, jobs, file, events)), asyncio.create_task(worker.wait())
    await asyncio.wait({ended, gone}, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
    assert not gone.done(), "the worker has ended"
    worker.terminate()
    await gone
    await ended
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


async def told(url: str, jobs: dict[str, dict[str, str]], file: Path, events: int) -> None:
    """Enqueue the jobs, and return when they have ended and so many events were sent."""
    async with Limpet(url) as app:
        while not await app.store.sessions():  # noqa: ASYNC110  # only then it is known what its tasks declare
            await asyncio.sleep(0.02)
        handles = [await app.enqueue(task, args) for task, args in jobs.items()]
        for handle in handles:
            with suppress(JobDead):
                await handle.result(WITHIN_S)
    while file.read_bytes().count(b"\n") < events:  # noqa: ASYNC110, ASYNC240  # another process writes it
        await asyncio.sleep(0.02)


async def test_a_dead_job_is_one_event_whatever_it_died_of_and_however_often_it_was_tried(tmp_path: Path) -> None:
    jobs: dict[str, dict[str, str]] = {
        "recovers": {},
        "fails": {"customer": "Ada"},
        "crashes": {},
    }
    events = await reported(tmp_path, "hook", jobs, 2)
    by_task = {event["transaction"]: event for event in events}
    assert sorted(event["transaction"] for event in events) == ["crashes", "fails"]
    failed = by_task["fails"]
    (exception,) = failed["exception"]["values"]
    assert (exception["type"], exception["value"]) == ("LookupError", "no such customer: Ada")
    frame = exception["stacktrace"]["frames"][-1]
    assert (frame["function"], frame["in_app"]) == ("fails", True)
    assert frame["context_line"] == 'raise LookupError(f"no such customer: {customer}")'
    assert failed["contexts"]["limpet"]["attempt"] == 3
    assert "args" not in failed["contexts"]["limpet"], "the SDK was not told to send personal data"
    assert failed["tags"]["limpet.queue"] == "default"
    assert failed["fingerprint"][0] == "limpet"
    assert "stacktrace" not in by_task["crashes"]["exception"]["values"][0]


async def test_no_event_holds_a_secret_not_even_one_that_the_app_sends_itself(tmp_path: Path) -> None:
    events = await reported(tmp_path, "hook", {"pays": {"card": CARD}}, 2)
    assert sorted(event["logger"] for event in events) == ["limpet", "shop"]
    assert {event["tags"]["limpet.task"] for event in events} == {"pays"}
    assert "4242" not in repr(events)
    assert "•••redacted••• was refused" in repr(events)


async def test_without_the_integration_the_sdk_makes_an_event_of_a_dead_job_and_none_of_a_retry(tmp_path: Path) -> None:
    events = await reported(tmp_path, "log", {"recovers": {}, "fails": {"customer": "Ada"}}, 1)
    assert [event["extra"]["limpet"]["event"] for event in events] == ["job dead"]


@pytest.mark.parametrize(
    ("traceback", "functions"),
    [
        ("", []),
        ("ValueError: no frames", []),
        (
            "Traceback (most recent call last):\n"
            '  File "/srv/a.py", line 3, in first\n    call()\n    ~~~~^^\n'
            "KeyError: 1\n\nThe above exception was the direct cause of the following exception:\n\n"
            "Traceback (most recent call last):\n"
            '  File "/srv/a.py", line 5, in second\n    raise ValueError\n'
            '  File "/x/site-packages/b.py", line 7, in third\n'
            "ValueError\n",
            ["second", "third"],
        ),
    ],
)
def test_frames_are_those_of_the_last_exception(traceback: str, functions: list[str]) -> None:
    frames = list(frames_of(traceback))
    assert [frame["function"] for frame in frames] == functions
    assert [frame["in_app"] for frame in frames] == [name != "third" for name in functions]
