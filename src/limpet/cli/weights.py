"""Commands about shares: how many jobs one turn of a queue or a tenant serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command

if TYPE_CHECKING:
    from limpet.ops.weights import Weight


@click.group(cls=Listing)
def weights() -> None:
    """Shares of queues and tenants: who gets how many jobs per turn."""


async def list_body(terminal: Terminal) -> None:
    """List queues and tenants with another share than 1."""
    async with terminal.operator() as operator:
        found = await operator.weights()
    shapes = [{"name": one.name, "weight": one.weight} for one in found]
    terminal.table("weights", ("queue or tenant", "jobs per turn"), [(one.name, one.weight) for one in found], shapes)


@click.argument("name")
@click.argument("weight", type=click.IntRange(1, 1_000))
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def set_body(terminal: Terminal, name: str, weight: int, reason: str) -> None:
    """Let one turn of NAME (queue:mail, tenant:acme) serve WEIGHT jobs."""
    from limpet.ops.weights import unused

    async with terminal.operator() as operator:
        found = await operator.set_weight(name, weight, reason=reason)
        note = await unused(operator.store, name)
    _told(terminal, found, [note] if note else [])


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def clear_body(terminal: Terminal, name: str, reason: str) -> None:
    """Give NAME the share that all others have: one job per turn."""
    async with terminal.operator() as operator:
        found = await operator.set_weight(name, 1, reason=reason)
    _told(terminal, found)


def _told(terminal: Terminal, found: Weight, notes: Sequence[str] = ()) -> None:
    if terminal.machine:
        terminal.answer({"name": found.name, "weight": found.weight, "notes": list(notes)})
        return
    terminal.text(f"{found.name}: {found.weight} per turn")
    for note in notes:
        terminal.say(f"note: {note}")


weights.add_command(command("list", lists=True)(list_body))
weights.add_command(command("set")(set_body))
weights.add_command(command("clear")(clear_body))
