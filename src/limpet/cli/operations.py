"""Commands about operations, which act on many jobs and outlive a process: list, show, continue, pause, cancel, run."""

from __future__ import annotations

import asyncio

import click

from limpet.cli.care import carried_out, line_of, told
from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command


@click.group(cls=Listing)
def operations() -> None:
    """Actions on many jobs that are stored: list, show, continue, pause, cancel, run."""


@click.option("--open", "is_open", is_flag=True, help="Only those that are not done or cancelled.")
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 1_000), help="How many.")
async def list_body(terminal: Terminal, is_open: bool, limit: int) -> None:
    """List operations, newest first; finished ones stay for seven days."""
    async with terminal.operator() as operator:
        found, now_ms = await operator.operations.list(finished=not is_open, limit=limit), operator.now_ms()
    columns = ("id", "state", "action", "jobs", "done", "died", "by", "started")
    terminal.table("operations", columns, [line_of(one, now_ms) for one in found], found)


@click.argument("id")
async def show_body(terminal: Terminal, id: str) -> None:
    """Show one operation: how far it is, how its sample ended, which jobs it could not change."""
    async with terminal.operator() as operator:
        told(terminal, await operator.operations.get(id))


@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
@click.option("--background", is_flag=True, help="Leave it to a server, or to `limpet operations run`.")
async def continue_body(terminal: Terminal, id: str, reason: str, background: bool) -> int:
    """Let a paused or failed operation go on, here or in the background."""
    async with terminal.operator() as operator:
        one = await operator.operations.resume(id, reason=reason)
        if not background:
            return await carried_out(terminal, operator.operations, one.id)
    told(terminal, one)
    return 0


@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def pause_body(terminal: Terminal, id: str, reason: str) -> None:
    """Pause an operation after the jobs that it is at."""
    async with terminal.operator() as operator:
        told(terminal, await operator.operations.pause(id, reason=reason))


@click.argument("id")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def cancel_body(terminal: Terminal, id: str, reason: str) -> None:
    """End an operation; what it has done stays."""
    async with terminal.operator() as operator:
        told(terminal, await operator.operations.cancel(id, reason=reason))


@click.argument("id", required=False)
async def run_body(terminal: Terminal, id: str | None) -> int:
    """Run an operation that waits, or follow it; without ID run all that wait and come, until Ctrl-C."""
    async with terminal.operator() as operator:
        if id is not None:
            return await carried_out(terminal, operator.operations, (await operator.operations.get(id)).id)
        from limpet.ops import OperationRunner

        runner = OperationRunner(operator.store)
        runner.start()
        terminal.say("running operations until Ctrl-C")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await runner.stop()
    return 0


operations.add_command(command("list", lists=True)(list_body))
operations.add_command(command("show")(show_body))
operations.add_command(command("continue")(continue_body))
operations.add_command(command("pause")(pause_body))
operations.add_command(command("cancel")(cancel_body))
operations.add_command(command("run")(run_body))
