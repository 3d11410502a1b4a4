"""Breaks a relay off between any two of its steps: every call to the outbox and to the store is a place to do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Enqueued, Job
from limpet.core.jobs.view import Control
from limpet.outbox.row import Row
from limpet.outbox.table import Failed, Kind, Table, Tally, Turn
from limpet.stores.base import Store

T = TypeVar("T")

Break = Callable[[str], None]  # is told the name of each boundary, and may not return


class BrokenTurn:
    """A turn whose calls have a boundary before and after them."""

    def __init__(self, turn: Turn, between: Break) -> None:
        self._turn = turn
        self._between = between

    @property
    def source(self) -> str:
        return self._turn.source

    @property
    def batch(self) -> int:
        return self._turn.batch

    @property
    def moved(self) -> bool:
        return self._turn.moved

    async def rename(self) -> None:
        await step("rename", self._turn.rename(), self._between)

    async def under_way(self) -> list[Row]:
        return await step("under_way", self._turn.under_way(), self._between)

    async def fresh(self, limit: int, skip: Collection[Kind]) -> list[Row]:
        return await step("fresh", self._turn.fresh(limit, skip), self._between)

    async def stamp(self, batch: int, seqs: Sequence[int]) -> None:
        await step("stamp", self._turn.stamp(batch, seqs), self._between)

    async def remove(self, seqs: Sequence[int]) -> None:
        await step("remove", self._turn.remove(seqs), self._between)

    async def set_aside(self, seq: int, why: str) -> None:
        await step("set_aside", self._turn.set_aside(seq, why), self._between)

    async def holds(self, ids: Sequence[str]) -> bool:
        return await step("holds", self._turn.holds(ids), self._between)


class BrokenTable:
    """An outbox whose turns can be broken off anywhere, their commit included."""

    def __init__(self, table: Table, between: Break) -> None:
        self._table = table
        self._between = between
        self.place = table.place

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn | None]:
        self._between("before turn")
        async with self._table.turn() as turn:
            yield None if turn is None else cast(Turn, BrokenTurn(turn, self._between))
            self._between("before commit")
        self._between("after commit")

    async def create(self) -> None:
        await self._table.create()

    async def wait(self, timeout_s: float) -> None:
        await self._table.wait(timeout_s)

    async def tally(self) -> Tally:
        return await self._table.tally()

    async def failed(self, limit: int) -> list[Failed]:
        return await self._table.failed(limit)

    async def retry_failed(self) -> int:
        return await self._table.retry_failed()

    async def close(self) -> None:
        await self._table.close()


class BrokenStore:
    """What a relay asks of a store."""

    def __init__(self, store: Store, between: Break) -> None:
        self._store = store
        self._between = between

    async def relay(
        self, source: str, batch: int, jobs: Sequence[Job], rules: Sequence[GateRule] = ()
    ) -> list[Enqueued] | None:
        return await step("relay", self._store.relay(source, batch, jobs, rules), self._between)

    async def open(self) -> None:
        await self._store.open()

    async def controls(self, kind: str) -> list[Control]:
        return await step("controls", self._store.controls(kind), self._between)


def broken(store: Store, table: Table, between: Break) -> tuple[Store, Table]:
    """Both, as a relay that is to be broken off uses them."""
    return cast(Store, BrokenStore(store, between)), cast(Table, BrokenTable(table, between))


async def step(name: str, call: Awaitable[T], between: Break) -> T:
    try:
        between(f"before {name}")
    except BaseException:
        cast(AsyncIterator[T], call).close()  # type: ignore[attr-defined]  # a coroutine that will never be awaited
        raise
    answer = await call
    between(f"after {name}")
    return answer
