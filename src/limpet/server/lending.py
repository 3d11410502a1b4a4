"""Lends jobs to workers that are other programs: notices those that go, and sweeps for them all."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from limpet.core.errors import StoreError
from limpet.core.jobs.lease import Serves
from limpet.core.records.claim import ClaimRecord
from limpet.ops.agent_sessions import KnownSessions
from limpet.ops.agents import Agents
from limpet.ops.types import KnownTypes
from limpet.server.caller import Caller
from limpet.server.log import server_log
from limpet.server.places import Places
from limpet.stores.base import Store

if TYPE_CHECKING:
    from limpet.server.call import Call

SWEEP_S: Final = 1.0  # as workers of ours do
LEASE_MS: Final = 60_000  # a program can say that it lives more often than an agent can


class Lending:
    """What one server remembers of the programs that work through it; what they hold is in the store alone."""

    def __init__(self, store: Store, places: Places) -> None:
        self._store = store
        self._places = places
        self._known = KnownSessions()
        self._types = KnownTypes(store)
        self._sweeping: asyncio.Task[None] | None = None

    def agents(self, caller: Caller) -> Agents:
        """The verbs of a worker, in the name of the caller and within its queues."""
        if self._sweeping is None:
            # From the first on, since from here on jobs may be held that only a sweep brings back.
            self._sweeping = asyncio.ensure_future(self._sweep())
        return Agents(
            self._store,
            caller.name,
            queues=caller.queues,
            known=self._known,
            types=self._types,
            sweep=False,
            lease_ms=LEASE_MS,
        )

    async def claim(
        self,
        call: Call[Any, Any],
        worker: str,
        serves: Serves,
        *,
        most: int,
        lease_ms: int | None,
        wait_ms: int,
        key: str | None,
    ) -> list[ClaimRecord]:
        """Jobs for the client of a call; nothing is held for one that has gone, nor when the server ends."""
        with self._places.one() if wait_ms else nullcontext():
            async with call.waiting() as request:
                jobs = await self.agents(call.caller).claim(
                    worker, serves, most=most, lease_ms=lease_ms, wait_ms=wait_ms, key=key, over=request.over
                )
                if not jobs:
                    request.refuse_barred()
                return jobs

    async def close(self) -> None:
        """End the sweeps."""
        sweeping, self._sweeping = self._sweeping, None
        if sweeping is not None:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping

    async def _sweep(self) -> None:
        """Take back what silent workers held, as a worker of ours does: there may be none."""
        while True:
            await asyncio.sleep(SWEEP_S * random.uniform(0.75, 1.25))
            try:
                lost = await self._store.expire()
            except StoreError as error:
                server_log(logging.WARNING, "the store failed a sweep", code=error.code, error=error)
                continue
            if lost:
                server_log(logging.WARNING, "took jobs back from silent workers", jobs=lost)
