"""Waiting for a job: a bar on a real pseudo terminal, lines for changes elsewhere, the result on stdout."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import msgspec

from limpet.cli.waiting import far_text, state_text
from limpet.core.endings.transition import Succeed
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed, Note
from limpet.core.records.job import JobRecord
from limpet.core.redaction.redaction import Redaction
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import claim, job, kill, put

WITHIN_S = 60.0


async def ended(store: Store) -> str:
    """A job that has succeeded."""
    (id,) = await put(store, job())
    (claimed,) = await claim(store)
    await store.settle("w1", 1, [Succeed(id, claimed.token, b'{"rows":10}')])
    return id_text(id)


def test_a_job_that_has_ended_answers_its_result_at_once(cli: Cli) -> None:
    id = cli.seed(ended)
    for words in (("job", id, "--wait"), ("job", "--wait", id), ("job", id[-8:], "--wait", "10s")):
        ran = cli(*words)
        assert (ran.out, ran.err) == ('{"rows":10}\n', "succeeded\n")
    whole = cli("job", id, "--wait", "--json")
    assert (whole.json["result"], whole.err) == ({"rows": 10}, "")


def test_a_job_that_ended_badly_is_exit_1(cli: Cli) -> None:
    dead = id_text(cli.seed(lambda store: kill(store, job()))[0])
    ran = cli("job", dead, "--wait", code=1)
    assert (ran.out, ran.err.splitlines()[0]) == ("", "dead")
    assert "is dead after attempt 1: ValueError: bad address" in ran.err
    whole = cli("job", dead, "--wait", "--json", code=1)
    assert whole.json["state"] == "dead"
    assert msgspec.json.decode(whole.err)["error"]["code"] == "job_dead"
    waiting = cli("enqueue", "t").out.strip()
    cli("cancel", waiting, "--reason", "not needed")
    assert "was cancelled: not needed" in cli("job", waiting, "--wait", code=1).err


def test_waiting_in_vain_is_exit_7(cli: Cli) -> None:
    id = cli("enqueue", "t").out.strip()
    ran = cli("job", id, "--wait", "10ms", code=7)
    assert (ran.out, ran.err.splitlines()[0]) == ("", "ready")
    assert f"limpet explain {id}" in ran.err
    assert cli("job", id, "--wait", "10ms", "--json", code=7).json["state"] == "ready"
    cli("job", "0190a5b2-7c3d-7e8f-9a0b-1c2d3e4f5a6b", "--wait", code=3)
    assert "ready" in cli("enqueue", "t", "--wait", "10ms", code=7).err


class Bar:
    """`limpet … --wait` in a process of its own: stderr is a terminal, stdout a pipe."""

    def __init__(self, *words: str) -> None:
        self._main, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "limpet.cli", *words],
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
            stdin=inner,
            stdout=subprocess.PIPE,
            stderr=inner,
            text=True,
        )
        self._inner = inner  # open until the end: without a holder the terminal is gone
        self.said = ""

    def until(self, pattern: str) -> None:
        """Wait until a line of the bar is like this."""
        end_s = time.monotonic() + WITHIN_S
        while not re.search(pattern, self.said):
            assert time.monotonic() < end_s, self.said[-2_000:]
            if select.select([self._main], [], [], 0.5)[0]:
                self.said += os.read(self._main, 65_536).decode(errors="replace")

    def end(self) -> tuple[str, int]:
        """What it printed, and its exit code."""
        drained = False
        while not drained:
            drained = self.process.poll() is not None
            if select.select([self._main], [], [], 0.1)[0]:
                self.said += os.read(self._main, 65_536).decode(errors="replace")
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            out = stdout.read()
        for end in (self._main, self._inner):
            os.close(end)
        return out, self.process.wait(WITHIN_S)


def test_a_bar_follows_the_job_and_goes_before_the_result(cli: Cli) -> None:
    id = cli("enqueue", "export", "--queue", "mail").out.strip()
    bar = Bar("job", id, "--wait", "60")
    bar.until("ready")
    (claimed,) = cli.seed(claim)
    tell(cli, claimed, 3, 10, "reading [red]page[/red]\x1b[31m")
    bar.until(r"running .*3 of 10 \(30 %\), reading \[red\]page\[/red\].\[31m.*\d:\d\d:\d\d")
    tell(cli, claimed, 10, 10, "written")
    bar.until(r"10 of 10 \(100 %\), written")

    async def succeed(store: Store) -> None:
        await store.settle("w1", 1, [Succeed(claimed.id, claimed.token, b"7")])

    cli.seed(succeed)
    assert bar.end() == ("7\n", 0)


def tell(cli: Cli, claimed: Claimed, done: int, total: int, message: str) -> None:
    """Store progress of a running job."""
    body = msgspec.json.encode({"done": done, "total": total, "message": message})

    async def save(store: Store) -> bool:
        return await store.save(claimed.id, claimed.token, Note("progress", "", body))

    assert cli.seed(save)


def test_a_line_tells_what_is_not_as_usual(cli: Cli) -> None:
    async def look(store: Store) -> list[str]:
        await put(store, job())
        (claimed,) = await claim(store)
        said = []
        for body in (b'{"done":1500}', b'{"done":2.5,"total":5}', b'{"done":9,"total":3,"message":"late"}'):
            await store.save(claimed.id, claimed.token, Note("progress", "", body))
            (view,) = await store.get([claimed.id])
            assert view is not None
            said.append(far_text(JobRecord.of(Redaction().job(view))))
        await store.cancel([claimed.id], "why")
        (view,) = await store.get([claimed.id])
        assert view is not None
        return [*said, state_text(JobRecord.of(Redaction().job(view)))]

    assert cli.seed(look) == ["1,500", "2.5 of 5 (50 %)", "9 of 3 (100 %), late", "running, was asked to stop"]
