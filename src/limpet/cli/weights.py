"""Commands about shares: how many jobs one turn of a queue or a tenant serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command

if TYPE_CHECKING:
    from limpet.core.records.queue import WeightChange


@click.group(cls=Listing)
def weights() -> None:
    """Shares of queues and tenants: who gets how many jobs per turn."""


async def list_body(terminal: Terminal) -> None:
    """List queues and tenants with another share than 1."""
    async with terminal.operator() as operator:
        found = await operator.weights()
    terminal.table("weights", ("queue or tenant", "jobs per turn"), [(one.name, one.weight) for one in found], found)


@click.argument("name")
@click.argument("weight", type=click.IntRange(1, 1_000))
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def set_body(terminal: Terminal, name: str, weight: int, reason: str) -> None:
    """Let one turn of NAME (queue:mail, tenant:acme) serve WEIGHT jobs."""
    async with terminal.operator() as operator:
        found = await operator.set_weight(name, weight, reason=reason)
    _told(terminal, found)


@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def clear_body(terminal: Terminal, name: str, reason: str) -> None:
    """Give NAME the share that all others have: one job per turn."""
    async with terminal.operator() as operator:
        found = await operator.set_weight(name, 1, reason=reason)
    _told(terminal, found)


def _told(terminal: Terminal, found: WeightChange) -> None:
    if terminal.machine:
        terminal.answer(found)
        return
    terminal.text(f"{found.name}: {found.weight} per turn")
    for note in found.notes:
        terminal.say(f"note: {note}")


weights.add_command(command("list", lists=True)(list_body))
weights.add_command(command("set")(set_body))
weights.add_command(command("clear")(clear_body))
