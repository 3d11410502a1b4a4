"""Commands about redaction: which keys and paths are hidden on every face, and rules added by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, complete_task

if TYPE_CHECKING:
    from limpet.core.records.redaction import RuleRecord


@click.group(cls=Listing)
def redaction() -> None:
    """Rules that hide secrets in jobs: password, args.card.number, *token*."""


async def list_body(terminal: Terminal) -> None:
    """List the rules: those of the code of all programs, and those added by hand."""
    async with terminal.operator() as operator:
        found = await operator.redaction.list()
    rows = [(one.rule, one.task or "all", one.added_by or "code") for one in found]
    terminal.table("rules", ("rule", "tasks", "added by"), rows, found)


@click.argument("rule")
@click.option("--task", default="", metavar="NAME", shell_complete=complete_task, help="Only for jobs of this task.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def add_body(terminal: Terminal, rule: str, task: str, reason: str) -> None:
    """Hide what RULE names, in jobs that are stored and in jobs to come: a key, or a path such as args.card.number."""
    async with terminal.operator() as operator:
        _told(terminal, await operator.redaction.add(rule, task=task, reason=reason), "hidden")


@click.argument("rule")
@click.option("--task", default="", metavar="NAME", shell_complete=complete_task, help="The task that the rule is for.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def remove_body(terminal: Terminal, rule: str, task: str, reason: str) -> None:
    """Show again what RULE hid. A program whose code has the rule adds it again when it starts."""
    async with terminal.operator() as operator:
        _told(terminal, await operator.redaction.remove(rule, task=task, reason=reason), "no longer hidden")


def _told(terminal: Terminal, one: RuleRecord, state: str) -> None:
    if terminal.machine:
        terminal.answer(one)
        return
    terminal.text(f"{one.rule}{f' of {one.task}' if one.task else ''}: {state}")


redaction.add_command(command("list", lists=True)(list_body))
redaction.add_command(command("add")(add_body))
redaction.add_command(command("remove")(remove_body))
