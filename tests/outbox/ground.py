"""A database of the user's own with an outbox in it, and jobs that are written into its transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import psycopg

from limpet.core.gate import GateRule
from limpet.core.jobs.ids import IdMaker, id_text
from limpet.core.jobs.job import Job
from limpet.outbox import Outbox, parse_outbox
from limpet.outbox.carrier import BATCH, Carrier
from limpet.outbox.table import Table, open_table
from limpet.stores.base import Store
from limpet.stores.sqlite.library import library
from limpet_contract.harness import Clock
from limpet_contract.making import JobOptions, make_job

NAMESPACE = "default"


class Ground:
    """One user's database. Tables are opened for as long as the ground is."""

    def __init__(self, url: str, namespace: str = NAMESPACE) -> None:
        self.url = url
        self.namespace = namespace
        self.place = parse_outbox(url)
        self.outbox = Outbox(self.place, namespace)
        self.ids = IdMaker()
        self._clock = Clock()
        self._tables: list[Table] = []

    def connect(self) -> Any:
        """A connection of the user's own, in the same library as the relay's where both are in one process."""
        if self.place.dialect == "sqlite":
            return library.connect(self.place.database)
        return psycopg.connect(self.url, prepare_threshold=None)  # there may be a pooler on the way

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection whose transaction is committed at the end."""
        with contextlib.closing(self.connect()) as conn:
            yield conn
            conn.commit()

    def job(self, **options: Unpack[JobOptions]) -> Job:
        """A job whose id is larger than any before."""
        return make_job(self.ids.make(self._clock.now_ms), options)

    async def write(self, *jobs: Job, rules: Sequence[GateRule] = ()) -> None:
        """One transaction that holds these jobs."""
        with self.transaction() as conn:
            await self.outbox.put(conn, jobs, rules)

    async def add(self, count: int, **options: Unpack[JobOptions]) -> list[bytes]:
        """Jobs, each in a transaction of its own; their ids."""
        jobs = [self.job(**options) for _ in range(count)]
        with contextlib.closing(self.connect()) as conn:
            for job in jobs:
                await self.outbox.put(conn, [job])
                conn.commit()
        return [job.id for job in jobs]

    def table(self) -> Table:
        """The outbox as a relay opens it."""
        table = open_table(self.place, self.namespace)
        self._tables.append(table)
        return table

    def carrier(self, store: Store, *, batch: int = BATCH) -> Carrier:
        """A relay's hands, with a connection of their own."""
        return Carrier(store, self.table(), batch=batch)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Look, or meddle, by hand."""
        with self.transaction() as conn:
            cursor = conn.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    def left(self) -> list[str]:
        """The ids that are still in the outbox, in order."""
        return [id for (id,) in self.ask("SELECT id FROM limpet_outbox ORDER BY seq")]

    async def close(self) -> None:
        """Let go of all tables; others may be opened."""
        for table in self._tables:
            await table.close()
        self._tables.clear()


async def drain(carrier: Carrier, most: int = 10_000) -> list[str]:
    """Step until nothing is left to do; what the steps did."""
    did: list[str] = []
    for _ in range(most):
        did.append(await carrier.step())
        if did[-1] == "idle":
            return did
        if did[-1] == "busy":
            await asyncio.sleep(0.01)
    raise AssertionError(f"it never rests: {did[-20:]}")


def texts(ids: Sequence[bytes]) -> list[str]:
    return [id_text(id) for id in ids]


class Cut(BaseException):
    """The relay ends here, and nothing of it may notice."""
