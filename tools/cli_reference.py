"""Writes docs/reference/cli.md from the help that the commands give themselves.

`python tools/cli_reference.py` writes the page; with --check it only says whether the page is up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from limpet.cli.commands import SECTIONS, SHORT
from limpet.cli.examples import examples_of
from limpet.cli.root import limpet

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
BEGIN, END = (
    "<!-- generated from the commands' own help: begin -->",
    "<!-- generated from the commands' own help: end -->",
)
WIDTH = 100
SHARED = ("--url", "--namespace", "--json", "--jsonl", "--help", "-h, --help")


def commands() -> Iterator[str]:
    """Every section with its commands, as the command line lists them."""
    root = click.Context(limpet, info_name="limpet", terminal_width=WIDTH)
    present = set(limpet.list_commands(root))
    for section, lines in SECTIONS.items():
        yield f"## {section}"
        for name in (name for names in lines for name in names.split(", ")):
            command = limpet.get_command(root, name) if name in present else None
            if command is not None:
                yield from described(command, f"limpet {name}", root)
    yield "## Short names"
    rows = "\n".join(f"| `limpet {short}` | `limpet {whole}` |" for short, whole in SHORT.items())
    yield f"These work too, with the same options.\n\n| short | the same as |\n|---|---|\n{rows}"


def described(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """One command, and those below it."""
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent, terminal_width=WIDTH)
    if not isinstance(command, click.Group):
        yield f"### {name}\n\n```text\n{without_shared(command.get_help(context))}\n```"
        return
    yield f"### {name}\n\n{command.help} {getattr(command, 'alone', '')}".rstrip()
    yield "```text\n" + "\n".join(examples_of(name.partition(" ")[2])) + "\n```"
    for below, inner in command.commands.items():
        yield from described(inner, f"{name} {below}", context)


def without_shared(text: str) -> str:
    """The help without the options that every command has; those are said once, at the top of the page."""
    kept = [line for line in text.splitlines() if not line.strip().startswith(SHARED)]
    return re.sub(r"\n+Options:\s*$", "", "\n".join(kept).rstrip())


def written(page: str) -> str:
    """The page with the part between the two marks written again."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        sys.exit(f"{PAGE} has lost its marks: {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n" + "\n\n".join(commands()) + f"\n\n{END}{after}"


def main() -> None:
    """Write the page, or with --check exit 1 when it is out of date."""
    page = PAGE.read_text()
    fresh = written(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh)
    elif fresh != page:
        sys.exit(f"{PAGE.name} is out of date: run python tools/cli_reference.py")


if __name__ == "__main__":
    main()
