"""Answers a path by another application, for callers that this server has admitted: each request by its own token."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from limpet.client.client import Client
from limpet.core.access.refusal import AccessError
from limpet.core.errors import LimpetError
from limpet.ops import Agents
from limpet.server.admission import address_of, refused_name
from limpet.server.caller import Caller
from limpet.server.problem import problem_response
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.server.api import Api


@dataclass(frozen=True)
class Visit:
    """An admitted caller, and what it may ask."""

    caller: Caller
    store: Store  # as the caller sees it
    client: Client
    agents: Agents


class Guest(Protocol):
    """The other application."""

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """It answers within."""

    async def answer(self, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class GuestPlace:
    """The path of a guest. Its lifespan is entered and left in one task, as its task groups must be."""

    def __init__(self, api: Api, guest: Guest) -> None:
        self._api = api
        self._guest = guest
        self._living: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when it answers. Idempotent."""
        if self._living is None:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._living = asyncio.ensure_future(self._live(ready))
            await asyncio.wait([ready, self._living], return_when=asyncio.FIRST_COMPLETED)
            if self._living.done():
                self._living.result()

    async def close(self) -> None:
        """Wait until it has ended; the event `closing` of the server ends it."""
        living, self._living = self._living, None
        if living is not None:
            await living

    async def _live(self, ready: asyncio.Future[None]) -> None:
        async with self._guest.lifespan():
            ready.set_result(None)
            await self._api.closing.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refused: Response | None = None
        try:
            visit = await self._visit(request)
        except AccessError as error:
            asked = f"{request.method} {request.url.path}"[:200]
            who = refused_name(request, None)
            self._api.refused.note(error, caller=who, address=address_of(request), asked=asked)
            refused = problem_response(error, scope["path"])
        except LimpetError as error:
            refused = problem_response(error, scope["path"])
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._guest.answer(visit, scope, receive, send)

    async def _visit(self, request: Request) -> Visit:
        await self._api.start()
        caller = await self._api.admission.admit(request)
        store = self._api.store_of(caller)
        return Visit(caller, store, self._api.app.client_on(store), self._api.lending.agents(caller))
