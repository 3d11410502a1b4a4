"""The outbox in a PostgreSQL database: one transaction per turn, which keeps other relays out while it lasts.

The lock is a row's, not a session's: it ends with the transaction wherever that ends, and works through a pooler. A
relay whose transaction was lost while a store answered cannot do harm either, since its batch arrives once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from limpet.core.errors import UsageError
from limpet.outbox.place import Place
from limpet.outbox.row import Row
from limpet.outbox.table import BATCH_BYTES, Failed, Kind, Tally, Turn, away, is_named_at, missing, named_at, statements
from limpet.stores.shown import redacted

CONNECT_S: Final = 5
ASK_S: Final = 2  # a caller's transaction is open meanwhile
CHANNEL: Final = "limpet_outbox"
VANISHED_MS: Final = 60_000  # silence in a turn: longer than any store takes to answer, or to be given up

# Where packets get lost without a word, a connection is given up after some ten seconds instead of hours.
DEFAULTS: Final[dict[str, object]] = {
    "application_name": "limpet outbox",
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 10_000,
}

_SQL: Final = {name: sql.encode() for name, sql in statements("postgresql").items()}

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class PostgresTable:
    """The outbox of one namespace in a database, over one connection."""

    def __init__(self, place: Place, namespace: str) -> None:
        self.place = place
        self.namespace = namespace
        self._conn: Connection | None = None
        self._home = ""  # which database that connection is to

    async def create(self) -> None:
        with self._trouble():
            conn = await self._connect()
            async with conn, conn.transaction():
                for statement in _SQL["create"].split(b";"):
                    await conn.execute(statement)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn | None]:
        with self._trouble():
            conn = await self._opened()
            async with conn.transaction():
                found = await _ask(conn, "lock", self.namespace, str(VANISHED_MS))
                await self._listen(conn, 0.0)  # what was told of until now, this turn will see
                yield PostgresTurn(conn, self.namespace, self._home, *found[0][:3]) if found else None

    async def wait(self, timeout_s: float) -> None:
        """Listen; through a pooler that forwards no notifications the time runs out."""
        with self._trouble():
            await self._listen(await self._opened(), timeout_s)

    async def _listen(self, conn: Connection, timeout_s: float) -> None:
        async with aclosing(conn.notifies(timeout=timeout_s)) as notices:
            async for notice in notices:
                if timeout_s and notice.payload == self.namespace:
                    return

    async def tally(self) -> Tally:
        with self._trouble():
            ((waiting, failed, oldest_ms),) = await _ask(await self._opened(), "tally", self.namespace)
        return Tally(waiting, failed, oldest_ms)

    async def failed(self, limit: int) -> list[Failed]:
        with self._trouble():
            return [Failed(*row) for row in await _ask(await self._opened(), "failed", self.namespace, limit)]

    async def retry_failed(self) -> int:
        with self._trouble():
            return await _do(await self._opened(), "retry_failed", self.namespace)

    async def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    # -- the connection

    async def _opened(self) -> Connection:
        if self._conn is not None and not self._conn.closed:
            return self._conn
        conn = await self._connect()
        try:
            if await _ask(conn, "tables") != [(True, True)]:
                raise missing(self.place)
            ((_, self._home, _),) = await _ask(conn, "home")
            await _do(conn, "name_source", self.namespace, named_at(self._home))
            await conn.execute(f"LISTEN {CHANNEL}".encode())
        except BaseException:
            conn.pgconn.finish()
            raise
        self._conn = conn
        return conn

    async def _connect(self) -> Connection:
        # No statement is prepared: behind a pooler the next one may reach another session.
        return await psycopg.AsyncConnection.connect(
            **_options(self.place),
            autocommit=True,
            prepare_threshold=None,
            row_factory=tuple_row,
            cursor_factory=psycopg.AsyncRawCursor,
        )

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Whatever the driver complains of is trouble with the database; the connection is not used again."""
        try:
            yield
        except psycopg.Error as error:
            self._leave()
            if isinstance(error, psycopg.errors.UndefinedTable):
                raise missing(self.place) from error
            raise away(self.place, error) from error
        except asyncio.CancelledError:
            self._leave()  # a statement may be under way on it
            raise

    def _leave(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.pgconn.finish()


class PostgresTurn:
    """A turn inside its transaction."""

    def __init__(self, conn: Connection, namespace: str, home: str, source: str, batch: int, seqs: list[int]) -> None:
        self._conn = conn
        self._namespace = namespace
        self._home = home
        self.source = source
        self.batch = batch
        self._seqs = seqs

    @property
    def moved(self) -> bool:
        return not is_named_at(self.source, self._home)

    async def rename(self) -> None:
        self.source = named_at(self._home)
        await _do(self._conn, "rename", self._namespace, self.source)

    async def under_way(self) -> list[Row]:
        return [Row(*row) for row in await _ask(self._conn, "rows", self._seqs)] if self._seqs else []

    async def fresh(self, limit: int, skip: Collection[Kind]) -> list[Row]:
        queues, tasks = [queue for queue, _ in skip], [task for _, task in skip]
        found = await _ask(self._conn, "fresh", self._namespace, limit, BATCH_BYTES, queues, tasks)
        return [Row(*row) for row in found]

    async def stamp(self, batch: int, seqs: Sequence[int]) -> None:
        self.batch, self._seqs = batch, list(seqs)
        await _do(self._conn, "stamp", self._namespace, batch, self._seqs)

    async def remove(self, seqs: Sequence[int]) -> None:
        await _do(self._conn, "remove", list(seqs))

    async def set_aside(self, seq: int, why: str) -> None:
        await _do(self._conn, "set_aside", seq, why)

    async def holds(self, ids: Sequence[str]) -> bool:
        ((found,),) = await _ask(self._conn, "holds", self._namespace, list(ids))
        return bool(found)


def home_of(place: Place) -> str:
    """Which database a URL leads to; blocks for seconds at most."""
    with psycopg.connect(**_options(place, connect_timeout=ASK_S), autocommit=True, prepare_threshold=None) as conn:
        ((_, home, _),) = conn.execute(_SQL["home"]).fetchall()
    return str(home)


def _options(place: Place, **ours: object) -> dict[str, Any]:
    """What libpq is told: what the URL says, and of the rest what we do."""
    try:
        given = psycopg.conninfo.conninfo_to_dict(place.url)
    except psycopg.ProgrammingError as error:
        raise UsageError(
            f"{place.shown!r} is not a PostgreSQL URL: {redacted(str(error)).strip()}",
            fix="write postgresql://user@host/database",
        ) from error
    return {**DEFAULTS, **ours, **{name: value for name, value in given.items() if value is not None}}


async def _ask(conn: Connection, name: str, *args: object) -> list[tuple[Any, ...]]:
    """The rows that a statement answers."""
    return await (await conn.execute(_SQL[name], args)).fetchall()


async def _do(conn: Connection, name: str, *args: object) -> int:
    """How many rows a statement changed."""
    return (await conn.execute(_SQL[name], args)).rowcount
