"""The outbox in a SQLite file: one short transaction at the end of a turn, after the store was asked.

Relays are not kept apart by a lock: a transaction that was held while a store answers would stop the application. Two
relays send the same batch, which arrives once; then one of them is faster, and the other's changes are not written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec

from limpet.outbox.place import Place
from limpet.outbox.row import Row
from limpet.outbox.table import (
    BATCH_BYTES,
    Failed,
    Kind,
    Tally,
    Turn,
    away,
    is_named_at,
    missing,
    named_at,
    outbox_log,
    statements,
)
from limpet.stores.open import SqliteUrl, parse_url
from limpet.stores.sqlite.library import library

T = TypeVar("T")

LOOK_S: Final = 0.05  # how soon a commit of another process is noticed
BUSY_S: Final = 5.0  # how long a commit waits for another one's

_SQL: Final = statements("sqlite")


class SqliteTable:
    """The outbox of one namespace in a file. Everything that touches the connection runs in one thread of its own."""

    def __init__(self, place: Place, namespace: str) -> None:
        self.place = place
        self.namespace = namespace
        parsed = parse_url(place.url)
        self._sync = parsed.sync if isinstance(parsed, SqliteUrl) else "full"
        self._thread = ThreadPoolExecutor(1, "limpet-outbox")
        self._conn: sqlite3.Connection | None = None
        self._home = ""  # which file that connection is to
        self._seen = -1  # the version of the file when the last turn began

    async def create(self) -> None:
        await self.use(_create, create=True)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn | None]:
        turn = await self.use(self._begin)
        yield turn
        if not await self.use(turn.commit):
            outbox_log(logging.INFO, "another relay was faster", batch=turn.batch)

    def _begin(self, conn: sqlite3.Connection) -> SqliteTurn:
        self._seen = _version(conn)
        source, batch, seqs = conn.execute(_SQL["state"], (self.namespace,)).fetchone()
        return SqliteTurn(self, self._home, source, batch, seqs)

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
                gone = self._conn is not None and not _has_tables(self._conn)
                self._drop()  # what was begun is rolled back
                raise (missing(self.place) if gone else away(self.place, error)) from error

        return await asyncio.wrap_future(self._thread.submit(there))

    def _open(self, create: bool) -> sqlite3.Connection:
        # Only --create may make the file: a wrong path must not become an empty database.
        uri = f"file:{_quoted(self.place.database or '')}?mode={'rwc' if create else 'rw'}"
        conn: sqlite3.Connection = library.connect(uri, uri=True, isolation_level=None, timeout=BUSY_S)
        try:
            # A batch must not be sent before it is known for good which rows it has.
            conn.execute(f"PRAGMA synchronous = {'NORMAL' if self._sync == 'normal' else 'FULL'}")
            if not create:
                self._home = _home(self.place)
                if not _has_tables(conn):
                    raise missing(self.place)
                if conn.execute(_SQL["state"], (self.namespace,)).fetchone() is None:
                    conn.execute(_SQL["name_source"], (self.namespace, named_at(self._home)))
        except BaseException:
            conn.close()
            raise
        self._conn = conn
        return conn

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


class SqliteTurn:
    """A turn. It reads as it goes; what it changes is gathered, and written in one short transaction at its end."""

    def __init__(self, table: SqliteTable, home: str, source: str, batch: int, seqs: str) -> None:
        self._table = table
        self._namespace = table.namespace
        self._home = home
        self.source = source
        self.batch = self._before = batch
        self._seqs = seqs
        self._changes: list[tuple[str, tuple[object, ...]]] = []
        self._gone: list[int] = []  # rows that will not be in the line any more

    @property
    def moved(self) -> bool:
        return not is_named_at(self.source, self._home)

    async def rename(self) -> None:
        self.source = named_at(self._home)
        self._changes.append(("rename", (self._namespace, self.source)))

    async def under_way(self) -> list[Row]:
        return _rows(await self._read("rows", self._seqs))

    async def fresh(self, limit: int, skip: Collection[Kind]) -> list[Row]:
        left_out = (_json(list(skip)), _json(self._gone))
        return _rows(await self._read("fresh", self._namespace, limit, BATCH_BYTES, *left_out))

    async def stamp(self, batch: int, seqs: Sequence[int]) -> None:
        self.batch, self._seqs = batch, _json(seqs)
        self._changes.append(("stamp", (self._namespace, batch, self._seqs)))

    async def remove(self, seqs: Sequence[int]) -> None:
        self._changes.append(("remove", (_json(seqs),)))
        self._gone += seqs

    async def set_aside(self, seq: int, why: str) -> None:
        self._changes.append(("set_aside", (seq, why)))
        self._gone.append(seq)

    async def holds(self, ids: Sequence[str]) -> bool:
        ((found,),) = await self._read("holds", self._namespace, _json(ids))
        return bool(found)

    async def _read(self, name: str, *args: object) -> list[tuple[Any, ...]]:
        return await self._table.use(lambda conn: conn.execute(_SQL[name], args).fetchall())

    def commit(self, conn: sqlite3.Connection) -> bool:
        """Write what was gathered; False, and nothing is written, when another relay has gone on meanwhile."""
        if not self._changes:
            return True
        conn.execute("BEGIN IMMEDIATE")
        _, batch, _ = conn.execute(_SQL["state"], (self._namespace,)).fetchone()
        if batch != self._before:
            conn.execute("ROLLBACK")
            return False
        for name, args in self._changes:
            conn.execute(_SQL[name], args)
        conn.execute("COMMIT")
        return True


def _create(conn: sqlite3.Connection) -> None:
    conn.execute("BEGIN IMMEDIATE")
    for statement in _SQL["create"].split(";"):
        conn.execute(statement)
    conn.execute("COMMIT")


def _has_tables(conn: sqlite3.Connection) -> bool:
    """False when they are certainly not there."""
    try:
        return bool(conn.execute(_SQL["tables"]).fetchone() == (1, 1))
    except library.Error:
        return True  # that is another trouble


def _home(place: Place) -> str:
    """A copy of a file, and one that was put back, is another file."""
    file = os.stat(place.database or "")
    return f"{file.st_dev}.{file.st_ino}"


def _version(conn: sqlite3.Connection) -> int:
    (version,) = conn.execute("PRAGMA data_version").fetchone()
    return int(version)


def _rows(found: Sequence[tuple[Any, ...]]) -> list[Row]:
    return [Row(*row) for row in found]


def _json(values: Sequence[object]) -> str:
    return msgspec.json.encode(values).decode()


def _quoted(path: str) -> str:
    """A path in a file: URI of SQLite."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
