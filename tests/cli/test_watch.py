"""A list that is watched: block by block, line by line, and drawn on a real pseudo terminal."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from limpet.cli.watch import fitted, with_interval
from limpet.core.jobs.ids import id_text
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.cli.pseudo import COLUMNS, ROWS, WITHIN_S, OnTerminal, plain
from tests.cli.test_help import COMMANDS
from tests.ops.making import job, put

LISTS = (
    *("jobs", "queues", "workers", "flows", "dead", "dead causes", "limits", "limits history", "breakers"),
    *("breakers history", "schedules", "schedules next", "approvals", "tokens", "stats", "events", "audit"),
    *("queues retention", "queues weights", "doctor", "tasks", "hooks", "operations", "redaction", "types"),
    *("alerts", "alerts rules", "alerts silences"),
)
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


class Watching(OnTerminal):
    """`limpet … --watch`."""

    @property
    def screen(self) -> list[str]:
        """The rows of the last whole drawing."""
        *_, last = re.split(r"\x1b\[\?25l\x1b\[H", self.said.rpartition("\x1b[J")[0])
        return plain(last).split("\n")

    def until(self, there: Callable[[list[str]], bool]) -> list[str]:
        """The screen, as soon as it is so."""
        end_s = time.monotonic() + WITHIN_S
        while not there(self.screen):
            assert time.monotonic() < end_s, self.said[-4_000:]
            self.hear()
        return self.screen


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
