"""The command that speaks MCP over stdin and stdout; and `/mcp`, which `limpet serve` adds to the API."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from limpet.cli.apps import nameless, refuse_memory
from limpet.cli.terminal import Terminal, reach
from limpet.cli.words import command
from limpet.core.errors import UsageError
from limpet.ops.codes import OK
from limpet.stores.extras import install_line

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from limpet.mcp.asgi import McpApp
    from limpet.server.guest import Guest, Visit


@click.option("--ops", is_flag=True, help="Also job, explain, dead, replay, discard, queue, stats.")
@click.option("--structured", is_flag=True, help="Answer records beside the text: four times as many tokens.")
async def mcp_body(terminal: Terminal, ops: bool, structured: bool) -> int:
    """Speak MCP over stdin and stdout, for an agent on this machine; its program starts this command.

    `limpet serve` answers MCP over HTTP, at /mcp.
    """
    try:
        from limpet.mcp.stdio import serve_stdio
    except ImportError as error:
        raise _missing(error) from error
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    app = nameless(terminal)
    refuse_memory(app, "the jobs would end with this command")
    terminal.openable(create=True)
    try:
        await reach(app.store, 0)
        await serve_stdio(app.store, app.client_on(app.store), f"mcp:{terminal.actor}", ops=ops, structured=structured)
    finally:
        await app.close()
    return OK.exit


def mcp_guest() -> dict[str, Guest]:
    """What answers /mcp on a server; nothing where the extra is not installed."""
    try:
        from limpet.mcp.asgi import McpApp
    except ImportError:
        return {}
    return {"/mcp": _McpGuest(McpApp())}


class _McpGuest:
    """MCP as the server knows its guests."""

    def __init__(self, app: McpApp) -> None:
        self._app = app

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        async with self._app.lifespan():
            yield

    async def answer(self, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        from limpet.mcp.desk import Desk

        caller = visit.caller
        desk = Desk(caller.name, caller.role, visit.store, visit.client, visit.agents)
        await self._app.answer(desk, scope, receive, send)


def _missing(error: ImportError) -> UsageError:
    return UsageError(f"limpet mcp needs packages that are not installed ({error.name})", fix=install_line("mcp"))


mcp = command("mcp")(mcp_body)
