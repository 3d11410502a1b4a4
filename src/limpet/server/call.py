"""Remembers one admitted request while it is answered: its caller, what it asks, and what may be asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from starlette.requests import Request

from limpet.client.client import Client
from limpet.core.jobs.job import Enqueued
from limpet.core.settings import ServerTable
from limpet.ops import Agents, Flows, Operator, Schedules, Types, Waits
from limpet.ops.feed import Feed
from limpet.ops.since import since_ms
from limpet.server.caller import Caller
from limpet.server.waiting import Barred, Waiting, waiting
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.app import Limpet
    from limpet.server.lending import Lending
    from limpet.server.places import Places

Q = TypeVar("Q")
B = TypeVar("B")
T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[Q, B]):
    """What a handler is given: `Call[JobsQuery, None]` reads the query into a JobsQuery and no body.

    The verbs of `operator` and its neighbours act in the caller's name and see no more than the caller may.
    """

    caller: Caller
    app: Limpet
    store: Store  # as the caller sees it
    path: Mapping[str, str]  # what stands in the place of each {name}
    query: Q
    body: B
    request: Request
    ids: Callable[[int], list[bytes]] | None = field(default=None, kw_only=True)  # of jobs, by an Idempotency-Key
    lending: Lending
    places: Places  # for requests that wait
    closing: asyncio.Event  # set when the server ends: streams and long polls end then
    barred: Barred  # returns once the token of the caller opens nothing any more
    settings: ServerTable  # of this server, as flags and files say
    feed: Feed  # the live events of the whole store: what the caller may not see must be left out

    @cached_property
    def operator(self) -> Operator:
        """Asks and corrects."""
        return Operator(self.store, self.caller.name, leases=self.caller.may("worker"))

    @property
    def client(self) -> Client:
        """Asks for jobs."""
        return self.app.client_on(self.store)

    @cached_property
    def flows(self) -> Flows:
        """Flows."""
        return Flows(self.store, self.caller.name)

    @cached_property
    def schedules(self) -> Schedules[Enqueued]:
        """Schedules; what runs now is answered as the store does."""
        return Schedules(self.store, self.caller.name, handle=lambda answer, task: answer)

    @cached_property
    def waits(self) -> Waits:
        """Approvals and signals."""
        return Waits(self.store, self.caller.name)

    @cached_property
    def types(self) -> Types:
        """What agents do, and what it takes and answers."""
        return Types(self.store, self.caller.name)

    @cached_property
    def agents(self) -> Agents:
        """The verbs of agents and workers; they keep to the caller's queues by themselves."""
        return self.lending.agents(self.caller)

    async def since_ms(self, text: str | None) -> int:
        """The instant that a parameter names; 0 without one."""
        return 0 if text is None else await since_ms(self.store, text)

    async def gone(self) -> None:
        """Return when the client has gone; the body must have been read, which it is before a handler runs."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass

    def waiting(self) -> AbstractAsyncContextManager[Waiting]:
        """Notice that this request must end. starlette does not cancel a handler whose client has gone."""
        return waiting(self.gone(), self.closing, self.barred)

    async def unless_over(self, work: Awaitable[T]) -> T | None:
        """What `work` answers; None when the client went first or the server ends: then the work is cancelled.

        Work that must not be cut in two shields itself. A token that ends meanwhile is refused.
        """
        working = asyncio.ensure_future(work)
        try:
            async with self.waiting() as request:
                ending = asyncio.ensure_future(request.over.wait())
                await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
                ending.cancel()
                request.refuse_barred()
            return working.result() if working.done() else None
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(working, return_exceptions=True)
