"""A bench on PostgreSQL in which verbs are stopped in the middle, so that others meet them there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from itertools import count
from typing import Any, Final, TypeVar

import psycopg

from limpet.stores.open import open_store
from limpet.stores.postgres.store import PostgresStore
from limpet.stores.postgres.wire import in_schema
from limpet_contract.bench import Bench
from limpet_contract.harness import Clock
from tests.engines.postgres.ways import PATIENT, until_waiting
from tests.servers.installations import PostgresFlavour
from tests.servers.postgres import shared

T = TypeVar("T")

# What somebody holds, so that a verb stops half-way.
NEW_LEASES: Final = "LOCK TABLE lp.lease IN SHARE MODE"  # written by a claim, after its jobs have left `wait`
NEW_RUNNING: Final = "LOCK TABLE lp.running IN SHARE MODE"  # written by a claim that has seen its gates
LEASES: Final = "SELECT FROM lp.lease FOR UPDATE"  # written by who ends a job, after the job has left `running`
GRAPH: Final = "SELECT lp.lock(:GRAPH)"
COUNTS: Final = "LOCK TABLE lp.tally IN EXCLUSIVE MODE"  # an enqueue counts last

SOON_S: Final = 30.0  # a busy machine takes seconds, and who waits for somebody here waits for ever

_number = count()


class Place(Bench):
    """A bench on a namespace of its own, in which transactions can be held open."""

    def __init__(self, flavour: PostgresFlavour) -> None:
        self.server = shared(flavour)
        self.namespace = f"races{next(_number)}"
        super().__init__(self.open_store(), Clock())
        self.others: list[Bench] = []

    def open_store(self) -> PostgresStore:
        store = open_store(f"{self.server.url}?{PATIENT}", self.namespace)
        assert isinstance(store, PostgresStore)
        return store

    async def another(self) -> Bench:
        """Another process."""
        bench = Bench(self.open_store(), self.clock)
        self.others.append(bench)
        await bench.store.open()
        return bench

    def sql(self, text: str) -> bytes:
        return in_schema(text, f"limpet_{self.namespace}").encode()

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self.server.ask(self.sql(query).decode(), *values)

    @contextlib.contextmanager
    def holding(self, *statements: str) -> Iterator[psycopg.Connection[Any]]:
        """Somebody's transaction, which holds what these statements lock until the block ends."""
        with contextlib.closing(psycopg.connect(self.server.url)) as line:
            for statement in statements:
                line.execute(self.sql(statement))
            yield line
            line.rollback()

    async def until_waiting(self, number: int) -> None:
        """So many wait for locks."""
        await until_waiting(self.server, number)


@contextlib.asynccontextmanager
async def a_place(flavour: PostgresFlavour) -> AsyncIterator[Place]:
    """A fresh one; its books must balance in the end."""
    place = Place(flavour)
    await place.store.open()
    yield place
    await place.check_books()
    for other in (place, *place.others):
        await other.store.close()
    place.ask(f'DROP SCHEMA "limpet_{place.namespace}" CASCADE')


def start(what: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Let somebody begin."""
    return asyncio.ensure_future(what)


async def soon(what: Awaitable[T]) -> T:
    """What nobody may have to wait for."""
    return await asyncio.wait_for(what, SOON_S)


async def dead(bench: Bench, **options: Any) -> bytes:
    """A job that has died: it must be the next in line."""
    id, hand = await bench.add(**options), bench.hand("undertaker")
    await hand.bury(await hand.take())
    return id
