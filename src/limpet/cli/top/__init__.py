"""The command that shows the queue live: queues, rates, latency, errors and workers, with keys to correct them."""

from __future__ import annotations

import os
import shutil
import sys

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import command, duration
from limpet.core.errors import UsageError
from limpet.ops.codes import OK

EVERY = "2s"
LEAST_MS = 250


@click.option("--every", type=duration, default=EVERY, metavar="TIME", help="How often to look (2s).")
@click.option("--filter", "name", default="", metavar="TEXT", help="Only rows whose names contain it.")
@click.option("--once", is_flag=True, help="Print one look, and end; needs no terminal.")
async def top_body(terminal: Terminal, every: int, name: str, once: bool) -> int:
    """Show queues, rates, latency, errors and workers, live. Press ? for the keys.

    Rates and times are those of the last minute, by what live workers say; jobs a second by the store's counters.
    """
    if every < LEAST_MS:
        raise UsageError("--every is too often", fix=f"at least {LEAST_MS}ms")
    if once:
        await _print(terminal, name)
        return OK.exit
    if terminal.machine:
        raise UsageError(
            "--json shows one look, and top has no end", fix="add --once; or `limpet stats --watch --json`"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("top draws on a terminal, and this is none", fix="add --once")
    from limpet.cli.top.screen import Screen
    from limpet.cli.top.session import Session
    from limpet.cli.top.view import View

    terminal.watches = True
    try:
        await Session(terminal, Screen(colours="NO_COLOR" not in os.environ), View(name), every).run()
    finally:
        await terminal.let_go()
    return OK.exit


async def _print(terminal: Terminal, name: str) -> None:
    from limpet.cli.top.frame import printed
    from limpet.cli.top.picture import look

    async with terminal.operator() as operator:
        picture = await look(operator)
    if terminal.json:
        terminal.answer(picture.to_dict())
    else:
        for line in printed(picture, name, shutil.get_terminal_size().columns):
            terminal.text(line)


top = command("top")(top_body)
