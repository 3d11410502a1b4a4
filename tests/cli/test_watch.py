"""A list that is watched: block by block, line by line, and drawn on a real pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from limpet.cli.watch import fitted, with_interval
from limpet.core.jobs.ids import id_text
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.cli.test_help import COMMANDS
from tests.ops.making import job, put

WITHIN_S = 60.0
ROWS, COLUMNS = 24, 80
LISTS = (
    *("jobs", "queues", "workers", "flows", "dead", "dead causes", "limits", "limits history", "breakers"),
    *("breakers history", "schedules", "schedules next", "approvals", "tokens", "stats", "events", "audit"),
    *("queues retention", "queues weights", "doctor", "tasks", "hooks"),
)
# The first terminal that the leader of a new session opens is the one whose Ctrl-C it hears.
ON_TERMINAL = """
import os, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
for number in (0, 1, 2):
    os.dup2(terminal, number)
os.execv(sys.executable, [sys.executable, "-m", "limpet.cli", *sys.argv[2:]])
"""
TWICE = ("--watch", "100ms", "--looks", "2")


@pytest.mark.parametrize("words", LISTS)
def test_every_list_is_watched(words: str, cli: Cli) -> None:
    cli("migrate")
    first, second = cli(*words.split(), *TWICE, "--jsonl", code=None).out.splitlines()
    assert msgspec.json.decode(first)["at"] < msgspec.json.decode(second)["at"]


def test_off_a_terminal_each_look_is_a_block_with_its_time(cli: Cli) -> None:
    cli("enqueue", "a", "--queue", "mail")
    first, second, rest = cli("queues", *TWICE).out.split("\n\n")
    for block in (first, second):
        time_, head, row = block.splitlines()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}[+-]\d\d:\d\d", time_)
        assert (head.split()[0], row.split()[0]) == ("QUEUE", "mail")
    assert rest == ""


def test_no_list_is_left_out() -> None:
    watched = {path for path, command in COMMANDS.items() if any(param.name == "every_ms" for param in command.params)}
    nouns = {path.removesuffix(" list") for path in watched}
    assert nouns == {*LISTS, "retention", "weights"}, "the last two by their short names"
    lists = {path for path, command in COMMANDS.items() if any(param.name == "jsonl" for param in command.params)}
    assert lists - watched == {"classify"}, "it lists rules, which stay as they are"


def test_a_query_may_follow_at_once(cli: Cli) -> None:
    cli("enqueue", "a", "--queue", "mail")
    cli("enqueue", "b", "--queue", "pdf")
    for order in (("--watch", "queue:mail", "--looks", "1"), ("queue:mail", "--looks", "1", "--watch")):
        (line,) = cli("jobs", *order, "--json").out.splitlines()
        assert [each["task"] for each in msgspec.json.decode(line)["jobs"]] == ["a"]
    assert with_interval(["--watch", "5", "x"]) == ["--watch", "5", "x"]
    assert with_interval(["--watch", "--json"]) == ["--watch=2s", "--json"]
    assert "at least 100ms" in cli("jobs", "--watch", "1ms", code=2).err


def test_what_does_not_fit_is_counted_and_the_newest_stays() -> None:
    lines = ["HEAD", *(f"line {number}" for number in range(10))]
    assert fitted(lines, 80, 11, head=True, newest_last=False) == lines
    assert fitted(lines, 80, 5, head=True, newest_last=False) == [*lines[:4], "… 7 lines more"]
    assert fitted(lines, 80, 5, head=True, newest_last=True) == ["HEAD", "… 7 lines more", *lines[-3:]]
    assert fitted(["x" * 100, "y", "z"], 80, 3, head=False, newest_last=False) == ["x" * 100, "… 2 lines more"]
    assert fitted(["\x1b[31m" + "x" * 80 + "\x1b[0m", "y"], 80, 2, head=False, newest_last=False)[1] == "y"


class Watching:
    """`limpet … --watch` in a process of its own, on a pseudo terminal."""

    def __init__(self, url: str, *words: str) -> None:
        self._main, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, os.ttyname(inner), *words],
            env={**os.environ, "LIMPET_URL": url, "TERM": "xterm", "NO_COLOR": "1"},
            start_new_session=True,
        )
        self._inner = inner  # open until the end: without a holder the terminal is gone
        self.said = ""

    @property
    def screen(self) -> list[str]:
        """The rows of the last whole drawing."""
        *_, last = re.split(r"\x1b\[\?25l\x1b\[H", self.said.rpartition("\x1b[J")[0])
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last).replace("\r", "").split("\n")

    def until(self, there: Callable[[list[str]], bool]) -> list[str]:
        """The screen, as soon as it is so."""
        end_s = time.monotonic() + WITHIN_S
        while not there(self.screen):
            assert time.monotonic() < end_s, self.said[-4_000:]
            if not select.select([self._main], [], [], 1.0)[0]:
                assert self.process.poll() is None, self.said[-4_000:]
            else:
                self.said += os.read(self._main, 65_536).decode(errors="replace")
        return self.screen

    def rest(self) -> str:
        """What it said last."""
        while select.select([self._main], [], [], 0)[0]:
            self.said += os.read(self._main, 65_536).decode(errors="replace")
        return self.said

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._main)
        os.close(self._inner)


@pytest.fixture
def watching(cli: Cli) -> Iterator[Callable[..., Watching]]:
    made: list[Watching] = []

    def start(*words: str) -> Watching:
        made.append(Watching(f"sqlite:///{cli.path}?sync=normal", *words))
        return made[-1]

    yield start
    for each in made:
        each.close()


async def many(store: Store) -> list[str]:
    return [id_text(id) for id in await put(store, *(job() for _ in range(40)))]


def test_a_list_is_drawn_again_until_ctrl_c(cli: Cli, watching: Callable[..., Watching]) -> None:
    ids = cli.seed(many)
    looks = watching("jobs", "--watch", "100ms")
    screen = looks.until(lambda rows: any("lines more" in row for row in rows))
    assert screen[0].startswith("every 100ms: limpet jobs --watch 100ms")
    assert screen[2].split() == ["id", "state", "task", "queue", "attempt", "age", "error"]
    assert ids[-1][-12:] in screen[3]
    assert len(screen) <= ROWS
    assert max(map(len, screen)) <= COLUMNS
    cli("cancel", "queue:mail", "--yes")
    cli("enqueue", "brand.new")
    looks.until(lambda rows: any("brand.new" in row for row in rows))
    looks.type("\x03")
    assert looks.process.wait(WITHIN_S) == 0
    assert looks.rest().endswith("\x1b[?25h"), "the cursor is there again"


def test_a_store_that_goes_away_comes_back(tmp_path: Path, cli: Cli, watching: Callable[..., Watching]) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    url = f"sqlite:///{home / 'jobs.db'}?sync=normal"
    cli("enqueue", "there", "--url", url)
    looks = watching("jobs", "--watch", "100ms", "--url", url)
    looks.until(lambda rows: any("there" in row for row in rows))
    home.rename(away)
    looks.until(lambda rows: any("the store is away: there is no store at" in row for row in rows))
    away.rename(home)
    looks.until(lambda rows: any("ready" in row for row in rows))


def test_a_script_that_is_interrupted_ends_well(cli: Cli) -> None:
    cli.seed(many)
    process = subprocess.Popen(
        [sys.executable, "-m", "limpet.cli", "queues", "--watch", "100ms", "--jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert msgspec.json.decode(process.stdout.readline())["queues"][0]["ready"] == 40
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, err) == (0, "")
