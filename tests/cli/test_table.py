"""A list never loses a column without a word, however narrow the screen."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from limpet.cli.table import fitted, show
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import job, kill, put

COLUMNS = ("id", "state", "task", "queue", "attempt", "age", "error")
ID = "01a1e175-0f87-7102-90dc-4e2ee7637c00"
ROW = (ID, "dead", "mail.send", "mail", "5/5", "1h30m", "ValueError: " + "x" * 90)


def on_screen(out: str) -> list[str]:
    """The lines without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()


Screen = Callable[[int], None]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Makes stdout a terminal of that width; called in the test, when stdout is the one that it will write to."""

    def make(width: int) -> None:
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return make


@pytest.mark.parametrize("width", [5, 40, 80, 100, 120, 300])
def test_every_column_is_there(width: int, screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen(width)
    show(COLUMNS, [ROW])
    lines = on_screen(capsys.readouterr().out)
    text = "\n".join(lines)
    for word in (*COLUMNS, *ROW[1:-1], "ValueError", ID[-12:]):
        assert word in text
    if width >= 80:
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    "row",
    [
        {"worker": "host-17:18984:4da6fe8b", "queues": "default,mail,pdf", "tasks": "12", "capabilities": "eng-backend"}
        | {"code": "08ffad7dff719031", "started": "58.6s ago", "running": "100", "beat": "3.5s ago", "loop": ""},
        {"task": "shop.tasks.send_welcome", "queue": "mail", "waiting": "12345", "running": "100", "dead": "16"}
        | {"done/min": "1,350", "failed": "11%", "p95": "840ms", "workers": "12", "options": "high (3); " + "x" * 60},
    ],
    ids=["workers", "tasks"],
)
def test_a_wide_list_fits_a_screen_of_80(row: dict[str, str]) -> None:
    assert fitted([*row], [[*row.values()]], 80) is not None


def test_text_gives_way_before_an_id_does(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen(120)
    show(COLUMNS, [ROW])
    out = capsys.readouterr().out
    assert ID in out
    assert "xxx…" in out


def test_what_fits_in_no_table_is_a_line_for_each_cell(screen: Screen, capsys: pytest.CaptureFixture[str]) -> None:
    screen(20)
    show(COLUMNS, [ROW, ROW])
    lines = [line.split() for line in on_screen(capsys.readouterr().out) if line]
    assert [line[0] for line in lines] == [*COLUMNS, *COLUMNS]
    assert lines[0][1] == ID
    assert lines[6][2] == "x" * 90


async def busy(store: Store) -> None:
    """A dead job with much to say, one that waits, and a queue that is paused for a reason."""
    message = "the provider of addresses has not answered within thirty seconds"
    await kill(
        store, job("shop.mail.send_welcome", args={"to": "a"}), error="urllib3.ReadTimeoutError", message=message
    )
    await put(store, job("shop.mail.send_welcome"))


@pytest.mark.parametrize("width", [80, 90, 100])
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("dead", "causes"), ("count", "cause", "task", "error", "message", "last", "sample", "ago")),
        (("dead",), ("id", "state", "task", "queue", "attempt", "age", "error", "1/5")),
        (("jobs",), ("id", "state", "task", "queue", "attempt", "age", "error", "urllib3")),
        (
            ("queues",),
            ("queue", "bloc", "sche", "ready", "runn", "succ", "dead", "canc", "oldest", "note", "paused by"),
        ),
        (("audit",), ("seq", "at", "who", "what", "on", "why", "the prov")),
    ],
)
def test_lists_fit_on_narrow_screens(
    cli: Cli, width: int, screen: Screen, words: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    cli.seed(busy)
    screen(width)
    cli("pause", "mail", "--reason", "the provider of addresses is down again")
    lines = on_screen(cli(*words).out)
    assert max(map(len, lines)) <= width
    for word in shown:
        assert word in "\n".join(lines)


def test_the_end_of_an_id_in_a_narrow_list_names_the_job(cli: Cli, screen: Screen) -> None:
    cli.seed(busy)
    screen(80)
    (short,) = (word for word in on_screen(cli("dead").out)[1].split() if word.startswith("…"))
    assert "ReadTimeoutError" in cli("dead", "show", short).out
