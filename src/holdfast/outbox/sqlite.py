"""The outbox in a SQLite file: short transactions, none of them open while a store is asked.

Relays are not kept apart by a lock: a transaction that was held while a store answers would stop the application. Two
relays send the same batch, which arrives once; then one of them is faster and the other's changes are not committed.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from holdfast.outbox.place import Place
from holdfast.outbox.row import Row
from holdfast.outbox.statements import statements
from holdfast.outbox.table import BATCH_BYTES, Failed, Kind, Tally, Turn, away, missing
from holdfast.stores.open import SqliteUrl, parse_url
from holdfast.stores.sqlite.library import library

T = TypeVar("T")

LOOK_S: Final = 0.05  # how soon a commit of somebody else is noticed
BUSY_S: Final = 5.0  # how long a commit waits for another one's

_SQL: Final = statements("sqlite")


class Overtaken(Exception):
    """Another relay has gone on from the batch that this turn began with."""


class SqliteTable:
    """The outbox of one namespace in a file. Everything that touches the connection runs in one thread of its own."""

    def __init__(self, place: Place, namespace: str) -> None:
        self.place = place
        self.namespace = namespace
        parsed = parse_url(place.url)
        self._sync = parsed.sync if isinstance(parsed, SqliteUrl) else "full"
        self._thread = ThreadPoolExecutor(1, "holdfast-outbox")
        self._conn: sqlite3.Connection | None = None
        self._seen = -1  # the version of the file when the last turn began

    async def create(self) -> None:
        await self.use(_create, create=True)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn | None]:
        turn = await self.use(self._begin)
        try:
            yield turn
            await self.use(turn.commit)
        except Overtaken:
            await self.use(turn.roll_back)
        except BaseException:
            self._thread.submit(self._drop)  # and not awaited: this may be a cancellation
            raise

    def _begin(self, conn: sqlite3.Connection) -> SqliteTurn:
        self._seen = _version(conn)
        source, batch, seqs = conn.execute(_SQL["state"], (self.namespace,)).fetchone()
        return SqliteTurn(self, source, batch, seqs)

    async def wait(self, timeout_s: float) -> None:
        """Look at the file's version, which every commit of another connection changes."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while (left_s := until_s - loop.time()) > 0:
            if await self.use(_version) != self._seen:
                return
            await asyncio.sleep(min(LOOK_S, left_s))

    async def tally(self) -> Tally:
        return Tally(*await self.use(lambda conn: conn.execute(_SQL["tally"], (self.namespace,)).fetchone()))

    async def failed(self, limit: int) -> list[Failed]:
        rows = await self.use(lambda conn: conn.execute(_SQL["failed"], (self.namespace, limit)).fetchall())
        return [Failed(*row) for row in rows]

    async def retry_failed(self) -> int:
        return await self.use(lambda conn: conn.execute(_SQL["retry_failed"], (self.namespace,)).rowcount)

    async def close(self) -> None:
        await asyncio.wrap_future(self._thread.submit(self._drop))

    # -- the connection

    async def use(self, work: Callable[[sqlite3.Connection], T], *, create: bool = False) -> T:
        """Do something with the connection; whatever the driver complains of is trouble with the database."""

        def there() -> T:
            try:
                return work(self._conn or self._open(create))
            except library.Error as error:
                self._drop()
                raise away(self.place, error) from error

        return await asyncio.wrap_future(self._thread.submit(there))

    def _open(self, create: bool) -> sqlite3.Connection:
        # Only --create may make the file: a wrong path must not become an empty database.
        uri = f"file:{_quoted(self.place.database or '')}?mode={'rwc' if create else 'rw'}"
        conn: sqlite3.Connection = library.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            # A batch must not be sent before it is known for good which rows it has.
            conn.execute(f"PRAGMA synchronous = {'NORMAL' if self._sync == 'normal' else 'FULL'}")
            if not create:
                if conn.execute(_SQL["tables"]).fetchone() != (1, 1):
                    raise missing(self.place)
                if conn.execute(_SQL["state"], (self.namespace,)).fetchone() is None:
                    conn.execute(_SQL["name_source"], (self.namespace, secrets.token_hex(8)))
        except BaseException:
            conn.close()
            raise
        self._conn = conn
        return conn

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()  # what was begun is rolled back


class SqliteTurn:
    """A turn. Its transaction begins with the first change."""

    def __init__(self, table: SqliteTable, source: str, batch: int, seqs: str) -> None:
        self._table = table
        self._namespace = table.namespace
        self.source = source
        self.batch = self._before = batch
        self._seqs = seqs
        self._open = False

    async def under_way(self) -> list[Row]:
        return _rows(await self._read("rows", self._seqs))

    async def fresh(self, limit: int, skip: Collection[Kind]) -> list[Row]:
        pairs = msgspec.json.encode(list(skip)).decode()
        return _rows(await self._read("fresh", self._namespace, limit, BATCH_BYTES, pairs))

    async def stamp(self, batch: int, seqs: Sequence[int]) -> None:
        self._seqs = _json(seqs)
        if await self._write("stamp", self._namespace, batch, self._seqs, self.batch) == 0:
            raise Overtaken
        self.batch = batch

    async def remove(self, seqs: Sequence[int]) -> None:
        await self._write("remove", _json(seqs))

    async def set_aside(self, seq: int, why: str) -> None:
        await self._write("set_aside", seq, why)

    async def holds(self, ids: Sequence[str]) -> bool:
        ((found,),) = await self._read("holds", self._namespace, msgspec.json.encode(list(ids)).decode())
        return bool(found)

    def commit(self, conn: sqlite3.Connection) -> None:
        if self._open:
            conn.execute("COMMIT")

    def roll_back(self, conn: sqlite3.Connection) -> None:
        if self._open:
            conn.execute("ROLLBACK")

    async def _read(self, name: str, *args: object) -> list[tuple[Any, ...]]:
        return await self._table.use(lambda conn: conn.execute(_SQL[name], args).fetchall())

    async def _write(self, name: str, *args: object) -> int:
        def work(conn: sqlite3.Connection) -> int:
            if not self._open:
                conn.execute("BEGIN IMMEDIATE")
                self._open = True
                self._refuse_if_overtaken(conn)
            return conn.execute(_SQL[name], args).rowcount

        return await self._table.use(work)

    def _refuse_if_overtaken(self, conn: sqlite3.Connection) -> None:
        _, batch, _ = conn.execute(_SQL["state"], (self._namespace,)).fetchone()
        if batch != self._before:
            raise Overtaken


def _create(conn: sqlite3.Connection) -> None:
    conn.execute("BEGIN IMMEDIATE")
    for statement in _SQL["create"].split(";"):
        conn.execute(statement)
    conn.execute("COMMIT")


def _version(conn: sqlite3.Connection) -> int:
    (version,) = conn.execute("PRAGMA data_version").fetchone()
    return int(version)


def _rows(found: Sequence[tuple[Any, ...]]) -> list[Row]:
    return [Row(*row) for row in found]


def _json(seqs: Sequence[int]) -> str:
    return msgspec.json.encode(list(seqs)).decode()


def _quoted(path: str) -> str:
    """A path in a file: URI of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
