"""A store that is opened when it is needed, and closed when it was not for a while: connections are for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from limpet.stores.base import Store

IDLE_S: Final = 10.0  # what is needed again so soon stays


class Spare:
    """Opened by its first user, closed a while after its last one. Belongs to one loop."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._store: Store | None = None
        self._users = 0
        self._later: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Store]:
        """The store, for as long as it is used."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._store is None:
            self._store = self._make()
        self._users += 1
        try:
            yield self._store
        finally:
            self._users -= 1
            if not self._users:
                self._later = asyncio.get_running_loop().call_later(IDLE_S, self._let_go)

    def _let_go(self) -> None:
        self._later = None
        store, self._store = self._store, None
        if store is not None:
            closing = asyncio.get_running_loop().create_task(store.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Let go now, and return when that is done."""
        if self._later is not None:
            self._later.cancel()
        self._let_go()
        if self._closing:
            await asyncio.wait(self._closing)
