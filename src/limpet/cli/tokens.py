"""Commands about the tokens of the HTTP API: create, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from limpet.cli.terminal import Terminal
from limpet.cli.words import Listing, command, complete_queue
from limpet.core.access.role import ROLES

if TYPE_CHECKING:
    from limpet.core.records.token import TokenRecord


@click.group(cls=Listing)
def tokens() -> None:
    """Tokens, with which programs and people use the HTTP API: create, list, revoke."""


@click.option("--role", required=True, type=click.Choice(ROLES), help="What it allows.")
@click.option("--name", metavar="NAME", help="What it is called; the audit log names it so.")
@click.option(
    "--queue", "queues", multiple=True, shell_complete=complete_queue, help="Only for this queue; repeatable."
)
@click.option("--expires", metavar="TIME", help="Such as 90d; left out, it does not expire.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def create_body(
    terminal: Terminal, role: str, name: str | None, queues: tuple[str, ...], expires: str | None, reason: str
) -> None:
    """Make a token for the namespace, and print its text: this once, on standard output alone."""
    async with terminal.operator() as operator:
        made = await operator.tokens.create(role, name=name, queues=queues or None, expires=expires, reason=reason)
    if terminal.machine:
        terminal.answer(made)
        return
    terminal.text(made.token)
    until = "does not expire" if made.expires_at is None else f"expires {_instant(made, 'expires_at')}"
    terminal.say(f"token {made.name}: {made.role}, {_scope(made)}, {until}")
    terminal.say("its text is not shown again; send it as: Authorization: Bearer TEXT")


@click.option("--all", "revoked", is_flag=True, help="Revoked ones, too.")
async def list_body(terminal: Terminal, revoked: bool) -> None:
    """List the tokens of the namespace: how each begins, what it allows, when it was last used."""
    async with terminal.operator() as operator:
        found = await operator.tokens.list(revoked=revoked)
    rows = [
        (
            one.name,
            one.prefix,
            one.role,
            _scope(one),
            one.state,
            _instant(one, "expires_at"),
            _instant(one, "last_used_at"),
        )
        for one in found
    ]
    terminal.table("tokens", ("token", "begins", "role", "queues", "state", "expires", "last used"), rows, found)


@click.argument("token")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit log.")
async def revoke_body(terminal: Terminal, token: str, reason: str) -> None:
    """End the token of that name, or that begins so: servers refuse it within a second."""
    async with terminal.operator() as operator:
        gone = await operator.tokens.revoke(token, reason=reason)
    if terminal.machine:
        terminal.answer(gone)
    else:
        terminal.text(f"token {gone.name}: revoked")


def _scope(token: TokenRecord) -> str:
    return "every queue" if token.queues is None else ", ".join(token.queues)


def _instant(token: TokenRecord, field: str) -> str:
    at = token.to_dict()[field]
    return "" if at is None else str(at)


tokens.add_command(command("list", lists=True)(list_body))
tokens.add_command(command("create")(create_body))
tokens.add_command(command("revoke")(revoke_body))
