"""The live screen, in a real terminal: what it draws, what its keys do, what it costs, and how it leaves."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from limpet import Dead, Limpet
from limpet.cli.top.frame import shares
from limpet.cli.top.ink import Column, cells, painted, pieces, plain, sparkline
from limpet.cli.top.screen import keys_of
from limpet.cli.top.view import Page, View
from limpet.core.jobs.state import State
from tests.cli.conftest import Cli
from tests.servers import postgres, redis
from tests.servers.flavours import REDIS
from tests.servers.installations import POSTGRES

WITHIN_S = 60.0
MOST_CPU = 0.02


class Tmux:
    """A terminal of 80 by 24 that tmux draws, with a shell in it that runs one command."""

    def __init__(self, folder: Path, url: str, words: str) -> None:
        self._socket = str(folder / "tmux")
        self.out = folder / "shell"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LIMPET_", "TMUX"))}
        self._env = {**kept, "LIMPET_URL": url, "TERM": "xterm-256color"}
        command = f"{shlex.quote(sys.executable)} -m limpet.cli top {words}"
        # What the terminal is like afterwards is seen by the shell.
        script = f"stty -a > {self.out}.before; {command}; echo code $?; stty -a > {self.out}.after; exec sleep 600"
        self._tmux("new-session", "-d", "-x", "80", "-y", "24", "bash", "-c", script)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *words]
        ran = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60, check=True)
        return ran.stdout

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def rows(self) -> list[str]:
        return self._tmux("capture-pane", "-p").splitlines()

    def shows(self, *texts: str) -> list[str]:
        """The rows, once all of these stand on the screen."""
        deadline_s = time.monotonic() + WITHIN_S
        while not all(text in "\n".join(rows := self.rows()) for text in texts):
            assert time.monotonic() < deadline_s, f"not {texts}:\n" + "\n".join(rows)
            time.sleep(0.02)
        return rows

    def process(self) -> psutil.Process:
        """The command itself."""
        shell = psutil.Process(int(self._tmux("display-message", "-p", "#{pane_pid}")))
        (command,) = shell.children()
        return command

    def left(self) -> list[str]:
        """The rows after the command has ended; the terminal must be as it was."""
        rows = self.shows("code ")
        while not (after := Path(f"{self.out}.after")).exists() or not after.read_text().strip():
            time.sleep(0.01)
        assert after.read_text() == Path(f"{self.out}.before").read_text()
        assert self._tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]
        return rows

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}?sync=normal"


@pytest.fixture
def tmux(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.fail("install tmux: the live screen is drawn in it")
    asyncio.run(filled(url))
    made = Tmux(tmp_path, url, getattr(request, "param", "--every 250ms"))
    yield made
    made.close()


async def filled(url: str, namespace: str | None = None) -> None:
    """A store with some of everything."""
    async with Limpet(url, namespace=namespace) as app:

        @app.task(name="pay", queue="bank", retry=1)
        async def pay(order: int) -> None:
            raise Dead(f"the bank refused order {order}")

        @app.task(name="mail.send", queue="mail")
        async def send() -> None: ...

        await app.enqueue_many([pay.job(number) for number in range(3)])
        await app.work(until_empty=True)
        await app.enqueue_many([send.job() for _ in range(1_234)])


async def states(url: str, task: str) -> dict[State, int]:
    async with Limpet(url) as app:
        counts = (await app.store.count()).now
        return {state: count for (_, name, state), count in counts.items() if name == task and count}


async def paused(url: str, queue: str) -> str | None:
    async with Limpet(url) as app:
        views = (await app.store.count(queues=True)).queues
        (gate,) = (view.gate for view in views if view.queue == queue)
        return None if gate is None or gate.paused is None else gate.paused.reason


def test_the_screen_shows_the_store_and_its_keys_correct_it(tmux: Tmux, url: str) -> None:
    rows = tmux.shows("QUEUES", "TASKS", "ERRORS", "1,234 ready", "the bank refused order")
    assert len(rows) == 24
    assert max(map(len, rows)) <= 80
    assert rows[0].startswith(" limpet top  sqlite:///")
    assert "q quit" in rows[-1]
    assert any(row.startswith("▸mail") for row in rows), "the fullest queue is the first"

    tmux.press("p")
    tmux.shows("pause queue mail; why?")
    tmux.press("incident 42", "Enter")
    tmux.shows("queue:mail is paused", "paused: incident 42")
    assert asyncio.run(paused(url, "mail")) == "incident 42"
    tmux.press("u", "Enter")
    tmux.shows("queue:mail is resumed")
    assert asyncio.run(paused(url, "mail")) is None

    tmux.press("/", "bank", "Enter")
    rows = tmux.shows("filter: bank")
    assert not any("mail" in row for row in rows)
    tmux.press("Escape")
    tmux.shows("mail.send")

    tmux.press("3", "Enter")
    tmux.shows("state:dead cause:", "limpet.Dead")
    tmux.press("Enter")
    tmux.shows("is dead:", "task         pay")
    tmux.press("r")
    tmux.shows("retry job")
    tmux.press("n")
    tmux.shows("nothing was changed")
    assert asyncio.run(states(url, "pay")) == {State.dead: 3}
    tmux.press("Escape", "Escape")
    tmux.shows("ERRORS")
    tmux.press("r")
    tmux.shows("retry the dead jobs of this cause? y/n")
    tmux.press("y")
    tmux.shows("3 of 3 jobs retried")
    assert asyncio.run(states(url, "pay")) == {State.ready: 3}
    tmux.press("?")
    tmux.shows("hold the picture")
    tmux.press("q", "0")
    tmux.shows("WORKERS")
    tmux.press("q")
    assert "code 0" in "\n".join(tmux.left())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_terminal_is_as_it_was_after_a_signal(tmux: Tmux, number: signal.Signals) -> None:
    tmux.shows("QUEUES")
    tmux.process().send_signal(number)
    rows = tmux.left()
    assert rows[0] == "code 0"


def test_the_terminal_is_as_it_was_after_an_error(tmux: Tmux, tmp_path: Path) -> None:
    tmux.shows("QUEUES")
    (tmp_path / "jobs.db").write_bytes(b"no database" * 1_000)
    rows = "\n".join(tmux.left())
    assert "limpet: " in rows
    assert "Traceback" not in rows


@pytest.mark.parametrize("tmux", ["--every 2s"], indirect=True)
@pytest.mark.matrix("it is watched for twenty seconds")
def test_a_screen_costs_two_percent_of_a_processor_at_most(tmux: Tmux) -> None:
    tmux.shows("QUEUES")
    process = tmux.process()
    before, began_s = process.cpu_times(), time.monotonic()
    time.sleep(20)
    after = process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    assert used_s / (time.monotonic() - began_s) < MOST_CPU


def test_one_look_is_text_for_people_and_json_for_programs(cli: Cli, tmp_path: Path) -> None:
    asyncio.run(filled(f"sqlite:///{tmp_path / 'top.db'}"))
    where = ("--url", f"sqlite:///{tmp_path / 'top.db'}")
    said = cli("top", "--once", *where).out
    assert "\x1b" not in said
    assert "1,234 ready" in said
    assert "limpet.Dead: the bank refused order" in said
    found: dict[str, Any] = msgspec.json.decode(cli("top", "--once", "--json", *where).out)
    assert found["stats"]["dead"] == 3
    assert [queue["queue"] for queue in found["queues"]] == ["bank", "mail"]
    assert [cause["count"] for cause in found["causes"]] == [3]
    assert {"at", "tasks", "workers"} < found.keys()
    assert "add --once" in cli("top", *where, code=2).err
    assert "add --once" in cli("top", "--json", *where, code=2).err


# -- the parts


def test_keys_are_read_from_what_a_terminal_sends() -> None:
    assert [*keys_of("j\x1b[A\x1bOB\r\x7f/é\x1b[5~")] == ["j", "up", "down", "enter", "backspace", "/", "é", "pgup"]
    assert [*keys_of("\x1b")] == ["esc"]
    assert [*keys_of("\x1b[1;5Cx\x1b[99~y")] == ["x", "y"], "what means nothing here is left out"


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [
        ([1, 1, 1], 9, [1, 1, 1]),
        ([50, 3, 0, 9], 20, [9, 3, 0, 8]),
        ([9, 9], 3, [1, 2]),
        ([9, 9, 9], 0, [0, 0, 0]),
    ],
)
def test_lists_share_the_room(wanted: list[int], room: int, given: list[int]) -> None:
    found = shares(wanted, room)
    assert sum(found) == min(sum(wanted), room)
    assert sorted(found) == sorted(given)


def test_a_row_is_as_wide_as_the_screen_whatever_stands_in_it() -> None:
    columns = (Column("name", right=False), Column("ready", 7), Column("why", right=False))
    for name in ("a", "ein langer Name, der nicht passt", "漢字漢字漢字漢字漢字", "evil\x1b[2J\nname"):
        row = cells(columns, (name, "1,234", "because of something long"), 40)
        from rich.cells import cell_len

        assert cell_len(plain(row)) <= 40
        assert "\x1b" not in plain(row)
        assert " 1,234" in plain(row)
    assert painted(pieces("abc"), 2, colours=True) == "ab"
    assert sparkline([0, 1, 2, 4], 3) == "▂▄█"


def test_the_way_back_leads_over_the_pages() -> None:
    view = View()
    assert view.press("?") is None
    assert view.page == Page("help")
    view.press("esc")
    assert view.page == Page("lists")
    asked = view.press("q")
    assert asked is not None
    assert asked.action == "quit"


# -- on a server


@pytest.fixture(
    params=[pytest.param("redis", marks=pytest.mark.redis), pytest.param("postgres", marks=pytest.mark.postgres)]
)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The options that lead to a fresh store on a server."""
    if request.param == "redis":
        name = f"top-{os.getpid()}"
        yield "--url", redis.shared(REDIS).url, "--namespace", name
    else:
        url = postgres.fresh_database(postgres.shared(POSTGRES))
        yield "--url", url
        postgres.bury(url)


def test_one_look_is_the_same_on_every_engine(cli: Cli, served: tuple[str, ...]) -> None:
    asyncio.run(filled(*served[1::2]))
    found: dict[str, Any] = msgspec.json.decode(cli("top", "--once", "--json", *served).out)
    assert {queue["queue"]: (queue["ready"], queue["dead"]) for queue in found["queues"]} == {
        "bank": (0, 3),
        "mail": (1_234, 0),
    }
    assert {task["task"] for task in found["tasks"]} == {"mail.send", "pay"}
    assert [(cause["task"], cause["count"]) for cause in found["causes"]] == [("pay", 3)]
    assert "1,234 ready" in cli("top", "--once", *served).out
