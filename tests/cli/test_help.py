"""The help fits a screen, leads to every command, and its examples are true."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from limpet.cli.commands import MODULES, SHORT, listed
from limpet.cli.examples import EXAMPLES, examples_of
from limpet.cli.root import limpet
from tests.cli.conftest import Cli

STAYS = (
    "mcp",
    "worker",
    "outbox",
    "serve",
    "demo",
    "completion",
    "dead review",
    "operations run",
)  # they run on, ask, or are no call of `limpet`
SHOP = """
from limpet import Limpet

app = Limpet(outbox="sqlite:///shop.db")


@app.task(name="mail.send", queue="mail")
def send(to: str) -> None: ...


@app.task(name="shop.report")
def report(kind: str) -> None: ...


@app.task(name="shop.tidy")
def tidy() -> None: ...
"""


def reached(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command below this one, by the words that lead to it."""
    if path:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in MODULES if command is limpet else command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from reached(below, f"{path} {name}".strip())


COMMANDS = dict(reached(limpet))


def test_the_top_fits_a_screen(cli: Cli) -> None:
    lines = cli("--help").out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_every_command_is_at_the_top_or_below_one_that_is(cli: Cli) -> None:
    assert sorted([*listed(), *SHORT]) == sorted(MODULES)
    assert {whole.split()[0] for whole in SHORT.values()} <= {*listed()}
    for short, whole in SHORT.items():
        assert f"limpet {short}" in cli(short, "--help").out
        assert whole in COMMANDS
    assert "did you mean 'agent'" in cli("agnet", code=2).err
    assert "did you mean 'claim'" in cli("agent", "clam", code=2).err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["jobs", "--limt", "3"], "--limit"),
        (["enqueue", "x", "--uniqe", "k"], "--unique"),
        (["worker", "shop:app", "--no-hook"], "--no-hooks"),
        (["worker", "shop:app", "--bogus"], None),
        (["jobs", "--queue", "mail"], None),
    ],
)
def test_an_option_is_suggested_only_when_it_is_close(words: list[str], meant: str | None, cli: Cli) -> None:
    said = cli(*words, code=2).err
    assert f"No such option '{words[-1] if words[-1].startswith('--') else words[-2]}'" in said
    if meant is None:
        assert "Did you mean" not in said
    else:
        assert said.rstrip().endswith(f"Did you mean '{meant}'?")


def test_every_command_ends_with_two_examples_of_itself(cli: Cli) -> None:
    assert {*EXAMPLES} <= {*COMMANDS}
    for path in COMMANDS:
        first, second = examples_of(path)
        ends = cli(*path.split(), "--help").out.splitlines()[-3:]
        assert ends == ["Examples:", f"  {first}", f"  {second}"], path


@pytest.mark.parametrize("group", [name for name in listed() if name not in STAYS])
def test_an_example_is_a_call_that_works(group: str, cli: Cli, tmp_path: Path) -> None:
    """It may not find what it names; it is never wrong use."""
    (tmp_path / "shop.py").write_text(SHOP)
    for name in ("answer.json", "state.json"):
        (tmp_path / name).write_text("{}")
    cli("migrate")
    for path in COMMANDS:
        if path.split()[0] != group or path in STAYS:
            continue
        for example in examples_of(path):
            limpet_, *words = shlex.split(example)
            assert limpet_ == "limpet"
            if "--follow" in words:  # it runs on
                COMMANDS[path].make_context(path, words[len(path.split()) :])
                continue
            ends = ["--looks", "1"] if "--watch" in words else []
            ran = cli(*_soon(words), *ends, code=None)
            assert ran.code != 2, f"{example}\n{ran.err}"


def _soon(words: list[str]) -> list[str]:
    """The same call, without time to wait in vain."""
    return [
        "10ms" if before in ("--wait", "--timeout") and word[0].isdigit() else word for before, word in _pairs(words)
    ]


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    return zip(["", *words], words, strict=False)


@pytest.mark.parametrize("path", STAYS)
def test_the_examples_of_what_runs_on_name_options_that_are_there(path: str) -> None:
    for example in examples_of(path):
        words = shlex.split(example.removeprefix('eval "$(').removesuffix(')"'))
        command = COMMANDS[path]
        command.make_context(path, words[1 + len(path.split()) :])
