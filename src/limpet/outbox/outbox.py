"""Puts jobs into an outbox: rows in the caller's own transaction, for a relay to carry once it has committed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from limpet.core.errors import WrongContext
from limpet.core.gate import GateRule
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.job import Job
from limpet.outbox.place import Place
from limpet.outbox.row import pack
from limpet.outbox.table import missing, outbox_log, schema, statements
from limpet.stores.callers import Caller, caller_of
from limpet.stores.packed import check_size

_NAMES: Final = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class Home:
    """Where the outbox's URL leads. A server that was restarted is another home, and so is asked again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._home: str | None = None
        self._trusted: set[str] = set()  # homes of callers, accepted while the outbox could not be asked

    async def is_at(self, home: str, *, block: bool) -> bool:
        """False when a caller's connection leads to another home than the URL. `block`: as all its calls do.

        Where the URL cannot be asked from here, as with a password that only the relay has, the name has to do.
        """
        if home == self._home or home in self._trusted:
            return True
        try:
            self._home = await self._ask(block)
        except Exception as error:
            why = str(error).strip() or type(error).__name__
            outbox_log(logging.WARNING, "not asked where it is, told by its name", outbox=self._place.shown, reason=why)
            self._trusted.add(home)
            return True
        return home == self._home

    async def _ask(self, block: bool) -> str:
        # Lazy: a caller over another driver may not have this one; then that is why.
        from limpet.outbox.postgres import home_of

        return home_of(self._place) if block else await asyncio.to_thread(home_of, self._place)


class Outbox:
    """The table beside the caller's own. Nothing here begins or commits anything."""

    def __init__(self, place: Place, namespace: str) -> None:
        self.place = place
        self._namespace = namespace
        self._sql = statements(place.dialect)
        self._home = Home(place)

    @property
    def schema(self) -> str:
        """What makes the tables, for migrations of your own."""
        return schema(self.place.dialect)

    async def put(self, conn: object, jobs: Sequence[Job], rules: Sequence[GateRule] = ()) -> None:
        """Write the jobs into the transaction that `conn` is in: they are relayed if and when it commits."""
        check_size(jobs)
        caller = caller_of(conn)
        if caller.dialect != self.place.dialect:
            raise WrongContext(
                f"the connection is to {_NAMES[caller.dialect]}, and the outbox is {self.place.shown}",
                fix="pass a connection to the outbox's own database",
            )
        await caller.refuse_outside_transaction()
        await self._look(caller)
        rows = [(id_text(job.id), job.lane.queue, job.lane.task, pack(job, rules)) for job in jobs]
        if self.place.dialect == "sqlite":
            for row in rows:
                await caller.run(self._sql["put"], (self._namespace, *row))
        elif rows:
            columns = map(list, zip(*rows, strict=True))
            await caller.run(self._sql["put"], (self._namespace, *columns))

    async def _look(self, caller: Caller) -> None:
        """Is this the outbox's database, and is the table there? A failed INSERT would spoil the transaction."""
        if self.place.dialect == "sqlite":
            await self._look_at_file(caller)
        else:
            await self._look_at_server(caller)

    async def _look_at_file(self, caller: Caller) -> None:
        ((file,),) = await caller.run(self._sql["file"])
        if not file or not _is_same(file, self.place.database or ""):
            raise self._elsewhere(file or "a database in memory")
        ((found, _),) = await caller.run(self._sql["tables"])
        if not found:
            raise missing(self.place)

    async def _look_at_server(self, caller: Caller) -> None:
        ((name, home, found),) = await caller.run(self._sql["home"])
        if self.place.database not in (None, name):
            raise self._elsewhere(f"the database {name}")
        if not found:
            raise missing(self.place)
        if not await self._home.is_at(home, block=not caller.awaitable):
            raise self._elsewhere(f"a database {name} on another server, or another schema")

    def _elsewhere(self, where: str) -> WrongContext:
        return WrongContext(
            f"the connection is to {where}, and the outbox is {self.place.shown}: no relay would find the job",
            fix="pass a connection to the outbox's own database",
        )


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
