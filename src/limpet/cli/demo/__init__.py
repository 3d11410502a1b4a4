"""Runs the demo: a backlog, a deployment, kills, an outage and dead letters in a minute; then counts what was lost."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import command
from limpet.core.errors import UsageError

if TYPE_CHECKING:
    from limpet.cli.demo.folder import Folder
    from limpet.cli.demo.plan import Plan

FOLDER: Final = ".demo"
SEED: Final = 7


@click.option("--resume", is_flag=True, help="Finish and verify the demo that was killed here.")
@click.option("--seed", type=int, help=f"Other customers, other mistakes ({SEED}).")
@click.option("--scale", type=click.FloatRange(0.01, 10), help="Multiply the number of jobs (1).")
async def demo_body(terminal: Terminal, resume: bool, seed: int | None, scale: float | None) -> int:
    """Run the whole story on SQLite in .demo/: emails, exports, a greedy tenant, killed workers, an outage.

    Takes about a minute and ends by itself; exit code 1 when a number is wrong.
    """
    from limpet.cli.demo.fleet import stop_strays
    from limpet.cli.demo.folder import Folder
    from limpet.cli.demo.plan import Plan
    from limpet.cli.demo.screen import some

    if terminal.flag_url or terminal.flag_namespace:
        raise UsageError("the demo has a store of its own, in .demo/", fix="leave out --url and --namespace")
    if resume and (seed is not None or scale is not None):
        raise UsageError("a resumed demo keeps its plan", fix="leave out --seed and --scale, or begin a new one")
    folder = Folder(Path(FOLDER))
    async with folder.locked():
        strays = await stop_strays(folder)  # before their files are deleted under them
        if strays:
            terminal.say(f"stopped {some(strays, 'worker')} that a killed demo had left behind")
        plan = folder.plan() if resume else None
        if plan is None:
            if resume:
                terminal.say("no demo was begun here: this is a new one")
            plan = Plan(SEED if seed is None else seed, 1.0 if scale is None else scale, time.time_ns() // 1_000_000)
            folder.begin(plan)
        elif not folder.noted("finished"):
            folder.note("resumed")
        return await _run(terminal, folder, plan)


async def _run(terminal: Terminal, folder: Folder, plan: Plan) -> int:
    from limpet.cli.demo.driver import Driver
    from limpet.cli.demo.report import words
    from limpet.cli.demo.screen import Screen

    with Screen(plan) as screen:
        try:
            summary = await Driver(folder, plan, screen).run()
        except asyncio.CancelledError:
            screen.say("interrupted; `limpet demo --resume` continues from here")
            raise
    if terminal.json:
        terminal.answer(summary)
    else:
        terminal.text(words(summary))
    for wrong in summary.wrong:
        terminal.say(f"WRONG  {wrong}")
    if summary.ok:
        terminal.say("every promise kept: nothing lost, nothing done twice")
    return 0 if summary.ok else 1


demo = command("demo")(demo_body)
