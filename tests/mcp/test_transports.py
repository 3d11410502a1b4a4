"""MCP over stdio and HTTP, with processes and sockets: both modes of the SDK's client, older versions, token roles."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from limpet.core.jobs.state import State
from limpet.ops import Operator
from limpet.stores.sqlite import SqliteStore
from tests.ops.making import job, put
from tests.server.served import served

MODES = ("auto", "legacy")


def on(folder: Path) -> SqliteStore:
    return SqliteStore(str(folder / "jobs.db"), sync="normal")


def first(answer: Any) -> str:
    text: str = answer.content[0].text
    return text


async def worked_off(client: Client) -> None:
    """One job, as an agent does it."""
    await client.call_tool("enqueue", {"task": "eng.api", "args": {"n": 1}})
    words = first(await client.call_tool("claim", {"agent": "a1", "tasks": ["eng.api"]})).split()
    ended = await client.call_tool("complete", {"id": words[1], "token": int(words[3]), "result": {"n": 2}})
    assert first(ended) == "the job is succeeded"


@pytest.mark.parametrize("mode", MODES)
async def test_over_stdio(tmp_path: Path, mode: Any) -> None:
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("LIMPET_")}, "PYTHONPATH": os.getcwd()}
    env["LIMPET_URL"] = f"sqlite:///{tmp_path}/jobs.db?sync=normal"
    command = StdioServerParameters(command=sys.executable, args=["-m", "limpet.cli", "mcp"], env=env, cwd=tmp_path)
    async with Client(command, mode=mode) as client:
        await worked_off(client)
    store = on(tmp_path)
    (line, *_) = await Operator(store, "ada").audit()
    assert line.actor.startswith("mcp:")
    await store.close()


async def test_over_http_with_a_token_of_each_role(tmp_path: Path) -> None:
    store = on(tmp_path)
    tokens = {role: (await Operator(store, "ada").tokens.create(role)).token for role in ("admin", "viewer")}
    scoped = (await Operator(store, "ada").tokens.create("worker", queues=["mail"])).token
    await put(store, job(queue="paper"))
    await store.close()
    async with served(tmp_path) as (_, banner):
        url = f"{banner['listens']}/mcp"
        for mode in MODES:
            async with reached(url, tokens["admin"], mode) as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert {"claim", "replay", "stats"} <= names
                await worked_off(client)
        async with reached(url, tokens["viewer"]) as client:
            assert "claim" not in {tool.name for tool in (await client.list_tools()).tools}
            assert "needs worker" in first(await client.call_tool("claim", {"agent": "a1"}))
        async with reached(url, scoped) as client:
            assert first(await client.call_tool("claim", {"agent": "a1"})).startswith("nothing to claim")
        async with httpx2.AsyncClient() as plain:
            answer = await plain.post(url, headers={"authorization": "Bearer wrong"}, json={})
            assert (answer.status_code, answer.json()["code"]) == (401, "token_invalid")
            assert (await plain.post(url, headers={"host": "evil.example"}, json={})).status_code == 401
    store = on(tmp_path)
    actors = {line.actor for line in await Operator(store, "ada").audit() if line.kind == "agent.complete"}
    assert [actor.rpartition("-")[0] for actor in actors] == ["token:admin"]
    assert (await store.count()).total(State.succeeded) == 2
    await store.close()


@asynccontextmanager
async def reached(url: str, token: str, mode: Any = "auto") -> AsyncIterator[Client]:
    http = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"})
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        yield client


def rpc(method: str, number: int | None = None, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}


async def test_every_older_version_by_hand(tmp_path: Path) -> None:
    store = on(tmp_path)
    made = {role: (await Operator(store, "ada").tokens.create(role)).token for role in ("admin", "viewer")}
    await store.close()
    async with served(tmp_path) as (_, banner), httpx2.AsyncClient() as http:
        url, accept = f"{banner['listens']}/mcp", "application/json, text/event-stream"
        for version in HANDSHAKE_PROTOCOL_VERSIONS:
            headers = {"authorization": f"Bearer {made['admin']}", "accept": accept}
            hello = rpc(
                "initialize", 1, protocolVersion=version, capabilities={}, clientInfo={"name": "t", "version": "1"}
            )
            answer = await http.post(url, headers=headers, json=hello)
            assert said_in(answer.text)["result"]["protocolVersion"] == version
            session = {**headers, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": version}
            assert (await http.post(url, headers=session, json=rpc("notifications/initialized"))).status_code == 202
            listed = said_in((await http.post(url, headers=session, json=rpc("tools/list", 2))).text)
            assert len(listed["result"]["tools"]) == 15
            asked = rpc("tools/call", 3, name="stats", arguments={})
            called = said_in((await http.post(url, headers=session, json=asked)).text)
            assert "0 ready" in called["result"]["content"][0]["text"]
            other = {**session, "authorization": f"Bearer {made['viewer']}"}
            assert (await http.post(url, headers=other, json=asked)).status_code == 404, "a session is its caller's own"


def said_in(text: str) -> Any:
    """The message in an answer, which may be a stream of events."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return msgspec.json.decode(lines[-1] if lines else text)
