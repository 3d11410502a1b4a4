"""What an engine brings to be tested: a way to open it empty, to open it again, and a clock that tests hold."""

from __future__ import annotations

import time
from typing import Protocol

from limpet.stores.base import Store


class Harness(Protocol):
    """One engine under test. A class with these four members is all that the contract asks for.

    `open` answers a store that is empty and ready; `reopen` answers a second handle on the same
    jobs, as another process would have (an engine that lives in one process may answer the same
    store); `close` lets go of everything that was opened.
    """

    @property
    def name(self) -> str: ...

    async def open(self) -> Store: ...

    async def reopen(self, store: Store) -> Store: ...

    async def close(self) -> None: ...


class Visitor(Protocol):
    """A caller with a database connection of its own to the store's database, in whatever way its driver has.

    It has a table of its own too, so that a test can see what was committed together.
    """

    @property
    def conn(self) -> object:
        """What it passes to the verbs that join a transaction."""

    async def begin(self) -> None:
        """Be in a transaction from here on, or with the next statement where the driver begins by itself."""

    async def write(self, name: str) -> None:
        """Add a row of its own, in that transaction."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...

    async def rows(self) -> list[str]:
        """Its own rows, in order, when it is in no transaction."""

    async def close(self) -> None: ...


class Transactional(Harness, Protocol):
    """A harness of an engine that joins callers' own transactions (`Features.transactional`): one member more."""

    async def visit(self, store: Store) -> Visitor:
        """A caller with a connection to the database of `store`, and a table there that is empty."""


class Clock:
    """The time that a test passes to every verb. It starts today, since a few verbs read the engine's own clock."""

    def __init__(self, start_ms: int | None = None) -> None:
        self.now_ms = int(time.time() * 1000) if start_ms is None else start_ms

    def advance(self, ms: int) -> int:
        """Let time pass; the new instant."""
        self.now_ms += ms
        return self.now_ms
