"""Notices that a request which waits must end: its client goes, the server ends, its token opens nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from limpet.core.access.refusal import TokenInvalid

Barred = Callable[[], Awaitable[None]]


class Waiting:
    """One request that waits; `over` is set when its answer is wanted no more."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._is_barred = False

    def bar(self) -> None:
        """Its token was revoked, or has expired."""
        self._is_barred = True

    def refuse_barred(self) -> None:
        """Raise when the token ended first: nothing is told to its holder any more."""
        if self._is_barred:
            raise TokenInvalid("the token was revoked or has expired while the request waited", fix="use another token")


@asynccontextmanager
async def waiting(gone: Awaitable[None], closing: asyncio.Event, barred: Barred) -> AsyncIterator[Waiting]:
    """Watch over a request until the end of the block."""
    found = Waiting()

    async def until_barred() -> None:
        await barred()
        found.bar()

    watching = [asyncio.ensure_future(each) for each in (gone, closing.wait(), until_barred())]
    for each in watching:
        each.add_done_callback(lambda done: found.over.set())
    try:
        yield found
    finally:
        for each in watching:
            each.cancel()
