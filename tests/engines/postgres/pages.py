"""Counts the pages that a server touches for a verb: what it costs, whoever else is busy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partialmethod
from typing import Any

import pytest

from limpet.stores.postgres.client import Call, Client


class Pages:
    """How many pages the server touches for a verb. It runs under EXPLAIN first: asked again, it answers the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
        self.count = 0
        self.verb = verb
        self.ask: Callable[..., Awaitable[list[Any]]] = Client._request
        monkeypatch.setattr(Client, "_request", partialmethod(_explained, self))


async def _explained(client: Client, pages: Pages, call: Call) -> list[Any]:
    if call.verb == pages.verb:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {call.sql}"
        ((((found,)),),) = await pages.ask(client, Call(explain, call.values, call.verb, call.repeat))
        pages.count += found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
    return await pages.ask(client, call)
