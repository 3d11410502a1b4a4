"""Runs the server over stdin and stdout, for one agent on this machine."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from limpet.client.client import Client
from limpet.mcp.desk import Desk
from limpet.mcp.service import Service
from limpet.ops import Agents
from limpet.stores.base import Store


async def serve_stdio(store: Store, client: Client, actor: str, *, ops: bool, structured: bool) -> None:
    """Answer until stdin ends. What the agent held by then is free when its leases end."""
    desk = Desk(actor, "admin", store, client, Agents(store, actor))
    service = Service(lambda context: desk, ops=ops, structured=structured)
    async with stdio_server() as (reading, writing):
        await service.server.run(reading, writing, service.server.create_initialization_options())
