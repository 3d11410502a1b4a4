"""Commands about hooks: which are published, and one that is not needed any more."""

from __future__ import annotations

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command


@click.group(cls=Listing)
def hooks() -> None:
    """Hooks, which are called when jobs end: on_dead, on_finished."""


async def list_body(terminal: Terminal) -> None:
    """List the published hooks: the ends and the tasks that each is for, its jobs, and the workers that run it."""
    async with terminal.operator() as operator:
        found = await operator.hooks()
    rows = [
        (
            one.name,
            ", ".join(one.states),
            ", ".join((*one.tasks, *(f"queue:{queue}" for queue in one.queues))) or "all",
            one.waiting,
            one.dead,
            one.workers,
        )
        for one in found
    ]
    columns = ("hook", "states", "tasks", "waiting", "dead", "workers")
    terminal.table("hooks", columns, rows, found)


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def remove_body(terminal: Terminal, name: str, reason: str) -> None:
    """Tell no more ends to the hook NAME, which no code has any more. A worker that has it publishes it again."""
    async with terminal.operator() as operator:
        changed = await operator.remove_hook(name, reason=reason)
    if terminal.machine:
        terminal.answer(changed)
    else:
        terminal.text(f"hook {name}: {'; '.join((changed.state, *changed.notes))}")


hooks.add_command(command("list", lists=True)(list_body))
hooks.add_command(command("remove")(remove_body))
