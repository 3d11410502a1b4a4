"""`dead edit` and the preview of edited arguments."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from limpet.client.registry import publish
from limpet.core.jobs.ids import id_text
from limpet.core.tasks.task import TaskSpec
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import job, kill


async def send(to: str, count: int = 1) -> None: ...


@pytest.fixture
def dead(cli: Cli) -> str:
    async def make(store: Store) -> str:
        await publish(store, [TaskSpec.declare(send, name="send")])
        return id_text((await kill(store, job(args={"to": "a", "count": 1})))[0])

    return cli.seed(make)


def test_edit_takes_arguments_and_runs_the_job_again(cli: Cli, dead: str) -> None:
    answer = cli("dead", "edit", dead, "--patch", '{"to": "b"}', "--reason", "moved", "--json").json
    assert (answer["done"], answer["edits"]) == (1, [{"before": {"to": "a"}, "after": {"to": "b"}}])
    found = cli("job", dead, "--json").json
    assert (found["state"], found["args"]) == ("ready", {"to": "b", "count": 1})
    assert 'to: "a" → "b"' in cli("audit").out


def test_edit_refuses_what_the_task_cannot_take(cli: Cli, dead: str) -> None:
    said = cli("dead", "edit", dead, "--patch", '{"count": "many"}', code=2).err
    assert 'count is "many", not a whole number' in said
    assert cli("job", dead, "--json").json["state"] == "dead"


def test_only_dead_jobs_are_edited(cli: Cli, dead: str) -> None:
    cli("retry", dead)
    assert "is ready, and only dead jobs are edited" in cli("dead", "edit", dead, "--patch", "{}", code=2).err


def test_off_a_terminal_edit_says_how_else(cli: Cli, dead: str) -> None:
    said = cli("dead", "edit", dead, code=2).err
    assert "this is not a terminal" in said
    assert "--patch" in said


def test_a_dry_run_shows_the_arguments_as_they_will_be(cli: Cli, dead: str) -> None:
    said = cli("dead", "retry", dead, "--args", '{"to": "b", "count": 1}', "--dry-run")
    assert '    to: "b"  (was "a")' in said.err
    assert "    count: 1\n" in said.err
    (sample,) = cli("dead", "retry", dead, "--patch", '{"to": "b"}', "--dry-run", "--json").json["samples"]
    assert sample["args"] == {"to": "b", "count": 1}


def at_terminal(dead: str, editor: Path, answers: str = "") -> tuple[int, str]:
    """Run `dead edit` at a terminal; its exit code, and all that it said."""
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    ours, theirs = os.openpty()
    try:
        os.write(ours, answers.encode())
        ran = subprocess.run(
            [sys.executable, "-m", "limpet.cli", "dead", "edit", dead],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "VISUAL": str(editor), "COLUMNS": "200"},
            timeout=90,
            check=False,
        )
        os.write(theirs, b"end")  # there is always something to read
        return ran.returncode, ran.stdout.decode() + os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("edit", "state", "code", "says"),
    [('s/"a"/"b"/', "ready", 0, "1 retried"), ("s/x/x/", "dead", 2, "were not changed")],
    ids=["changed", "unchanged"],
)
def test_at_a_terminal_the_editor_opens(
    cli: Cli, dead: str, tmp_path: Path, edit: str, state: str, code: int, says: str
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\nsed -i '{edit}' \"$1\"\n")
    ended, said = at_terminal(dead, editor)
    assert (ended, says in said) == (code, True)
    assert cli("job", dead, "--json").json["state"] == state
    if not code:
        assert msgspec.json.decode(cli("job", dead, "--json").out)["args"]["to"] == "b"


def test_masks_that_are_left_alone_stay_what_they_hide(cli: Cli, dead: str, tmp_path: Path) -> None:
    cli("redaction", "add", "args.to")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i \'s/"count": 1/"count": 2/\' "$1"\n')
    assert at_terminal(dead, editor)[0] == 0
    cli("redaction", "remove", "args.to")
    assert cli("job", dead, "--json").json["args"] == {"to": "a", "count": 2}


@pytest.mark.parametrize(
    ("mistake", "says"),
    [("'s/1/\"many\"/'", 'count is "many", not a whole number'), ("'s/1/,/'", "is not a JSON object")],
    ids=["unfit", "no JSON"],
)
def test_what_was_typed_is_not_lost_by_a_mistake(cli: Cli, dead: str, tmp_path: Path, mistake: str, says: str) -> None:
    """The editor opens again with the same text, and the mistake in it."""
    editor, seen = tmp_path / "editor", tmp_path / "seen"
    mend = 'sed -i \'s/"many"/7/; s/: ,/: 7/\' "$1"'
    break_it = f'sed -i \'s/"a"/"b"/\' "$1"; sed -i {mistake} "$1"; touch {seen}'
    editor.write_text(f"#!/bin/sh\nif [ -e {seen} ]; then {mend}; else {break_it}; fi\n")
    ended, said = at_terminal(dead, editor, "y\n")
    assert says in said
    assert "edit it again?" in said
    assert (ended, "1 retried" in said) == (0, True)
    found = cli("job", dead, "--json").json
    assert (found["state"], found["args"]) == ("ready", {"to": "b", "count": 7})
