"""An agent that works over MCP, in a process of its own: python -m tests.chaos.mcp_agent NAME stdio|URL [hang]."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

LEASE_S = 3


def place(where: str) -> Any:
    if where == "stdio":
        return StdioServerParameters(command=sys.executable, args=["-m", "limpet.cli", "mcp"], env=dict(os.environ))
    return streamable_http_client(where)


async def text(client: Client, tool: str, **arguments: Any) -> str:
    answer: Any = await client.call_tool(tool, arguments)
    found: str = answer.content[0].text
    return found


async def main(name: str, where: str, hangs: bool) -> None:
    async with Client(place(where), mode="legacy" if name.endswith("1") else "auto") as client:
        while True:
            claimed = await text(client, "claim", agent=name, wait_s=20, lease_s=LEASE_S)
            words = claimed.split()
            if words[0] != "id":
                continue
            if hangs:
                sys.stdout.write(f"holds {words[1]}\n")
                sys.stdout.flush()
                await asyncio.Event().wait()
            held = {"id": words[1], "token": int(words[3])}
            args = json.loads(next(line for line in claimed.splitlines() if line.startswith("args: "))[6:])
            if int(words[5].partition("/")[0]) <= args.get("fails", 0):
                await text(client, "fail", **held, message="not yet")
            else:
                await text(client, "complete", **held, result={"by": name})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:] == ["hang"]))
