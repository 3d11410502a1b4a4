"""`limpet events --follow`: live events of jobs and new lines of the log, clearly told apart."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from limpet.cli.follow import line_of_event
from limpet.core.jobs.bulletin import Counted, Moved
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import State
from limpet.core.jobs.view import Entry
from limpet.core.records.live import EventGap, JobCounts, JobEvent
from limpet.core.records.log import EventRecord
from limpet.stores.base import READER, Store
from tests.cli.conftest import Cli
from tests.ops.making import job, put

WITHIN_S = 100
CLOSED = Entry("event", 0, "breaker.closed", data=b'{"gate":"breaker:smtp"}')


async def closed(store: Store) -> None:
    await store.append([CLOSED])


@contextmanager
def following(cli: Cli, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it is a reader."""
    command = [sys.executable, "-m", "limpet.cli", "events", "--follow", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        cli.seed(until_read)
        yield process
    finally:
        process.kill()
        process.communicate(timeout=WITHIN_S)


async def until_read(store: Store) -> None:
    async with asyncio.timeout(WITHIN_S):
        while True:
            if await store.controls(READER[0]):
                return
            await asyncio.sleep(0.01)


def line(process: subprocess.Popen[str]) -> str:
    """The next line; the process is killed when it says nothing."""
    assert process.stdout is not None
    alarm = threading.Timer(WITHIN_S, process.kill)
    alarm.start()
    try:
        return process.stdout.readline().rstrip()
    finally:
        alarm.cancel()


def test_jobs_and_the_log_are_followed_and_told_apart(cli: Cli) -> None:
    cli("migrate")
    cli.seed(closed)
    with following(cli) as process:
        assert line(process).split("  ", 1)[1] == "log   breaker smtp closed"
        cli.seed(lambda store: put(store, job("send")))
        assert line(process).split()[1:6] == ["live", "enqueued", "ready", "mail", "send"]
        cli.seed(closed)
        assert line(process).split()[1:] == ["log", "breaker", "smtp", "closed"]
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0, "Ctrl-C is a good end"
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_query_leaves_out_the_log_and_count_ends_it(cli: Cli) -> None:
    cli("migrate")
    cli.seed(closed)
    with following(cli, "--jsonl", "--count", "1", "queue:mail") as process:
        cli.seed(lambda store: put(store, job("render", "pdf"), job("send")))
        shown = msgspec.json.decode(line(process))
        assert (shown["type"], shown["kind"], shown["task"]) == ("job", "enqueued", "send")
        assert process.wait(WITHIN_S) == 0


def test_lines_of_the_log_count_too_and_say_so_in_json(cli: Cli) -> None:
    cli("migrate")
    cli.seed(closed)
    ran = cli("events", "--follow", "--jsonl", "--count", "1")
    shown = msgspec.json.decode(ran.out)
    assert (shown["type"], shown["kind"], shown["seq"]) == ("log", "breaker.closed", 1)


def test_what_a_command_does_is_seen_though_it_ends_at_once(cli: Cli) -> None:
    cli("enqueue", "send", "--queue", "mail")
    with following(cli, "--jsonl", "state:cancelled") as process:
        cli("cancel", "queue:mail", "--yes", "--reason", "why")
        shown = msgspec.json.decode(line(process))
        assert (shown["kind"], shown["queue"], shown["task"]) == ("cancelled", "mail", "send")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("queue:mail",), "add --follow"),
        (("--count", "3"), "add --follow"),
        (("--follow", "--json"), "use --jsonl"),
        (("--follow", "--watch"), "use --jsonl"),
        (("--follow", "args.x:1"), "live events cannot be asked for args.x"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    cli("migrate")
    assert said in cli("events", *words, code=2).err


AT_MS = 1_767_323_045_678
MOVED = Moved((7).to_bytes(16), ("mail", "send"), "retried", State.scheduled, 2, AT_MS)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (lambda: JobEvent.of(MOVED, "e-1"), f"live retried scheduled mail send {id_text(MOVED.id)} attempt 2"),
        (lambda: JobCounts.of(Counted(("pdf", "x"), State.ready, 1_204), "e-1", AT_MS), "live 1,204 jobs ready pdf x"),
        (lambda: JobCounts.of(Counted(("", ""), State.ready, 2), "e-1", AT_MS), "live 2 jobs ready ? ?"),
        (lambda: EventRecord.of(CLOSED), "log breaker smtp closed"),
        (
            lambda: EventGap.of("slow", "e-1", AT_MS),
            "gap this reader was too slow, and events were dropped; what is shown by other commands counts",
        ),
    ],
)
def test_a_line_says_what_it_is(event: Callable[[], JobEvent], words: str) -> None:
    assert " ".join(line_of_event(event()).split()[1:]) == words
