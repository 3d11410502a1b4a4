"""Callers with database connections and transactions of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel

from limpet.core.gate import GateRule
from limpet.core.jobs.job import Enqueued, Job
from limpet_contract.bench import Bench
from tests.engines.postgres.namespace import Namespace

T = TypeVar("T")

SOON_S = 30.0  # a busy machine takes seconds, and who waits for a guest here waits for ever


async def soon(what: Awaitable[T]) -> T:
    """What nobody may have to wait for."""
    return await asyncio.wait_for(what, SOON_S)


class Guest:
    """A caller in a transaction of its own."""

    def __init__(self, bench: Bench, line: psycopg.AsyncConnection[Any]) -> None:
        self.bench = bench
        self.line = line

    async def put(self, *jobs: Job, rules: Sequence[GateRule] = ()) -> list[Enqueued]:
        """Enqueue inside the transaction, without having to wait for anybody."""
        return await soon(self.bench.joined.enqueue_on(self.line, jobs, rules, now_ms=self.bench.clock.now_ms))

    async def ask(self, query: str) -> list[tuple[Any, ...]]:
        return await (await self.line.execute(query.encode())).fetchall()

    async def commit(self) -> None:
        await soon(self.line.commit())


@contextlib.asynccontextmanager
async def guest(place: Namespace, bench: Bench, level: IsolationLevel | None = None) -> AsyncIterator[Guest]:
    """A caller beside a bench; what it has not committed by the end never was."""
    line = await psycopg.AsyncConnection.connect(place.server.url)
    try:
        await line.set_isolation_level(level)
        yield Guest(bench, line)
    finally:
        await line.close()
