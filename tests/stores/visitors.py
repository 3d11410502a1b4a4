"""Every way in which people reach a database from Python, each as a caller with a table of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from limpet.stores.sqlite.library import library
from limpet_contract.harness import Visitor

TABLE: Final = "CREATE TABLE IF NOT EXISTS visited (name TEXT)"
READ: Final = "SELECT name FROM visited ORDER BY name"


def _write(name: str) -> str:
    return f"INSERT INTO visited VALUES ('{name}')"


class Plain:
    """A connection of a DB-API driver that begins by itself, or a Session or Connection of SQLAlchemy."""

    def __init__(self, conn: Any, say: Callable[[str], Any] = str, close: Callable[[], object] = lambda: None) -> None:
        self.conn = conn
        self._say = say
        self._close = close
        conn.execute(say(TABLE))
        conn.commit()

    async def begin(self) -> None: ...

    async def write(self, name: str) -> None:
        self.conn.execute(self._say(_write(name)))

    async def commit(self) -> None:
        self.conn.commit()

    async def rollback(self) -> None:
        self.conn.rollback()

    async def rows(self) -> list[str]:
        found = [row[0] for row in self.conn.execute(self._say(READ)).fetchall()]
        self.conn.rollback()
        return found

    async def close(self) -> None:
        self.conn.close()
        self._close()


class ByHand(Plain):
    """A connection whose owner says BEGIN itself."""

    async def begin(self) -> None:
        self.conn.execute("BEGIN IMMEDIATE")


class Async:
    """The same for connections that are awaited."""

    def __init__(
        self, conn: Any, say: Callable[[str], Any] = str, close: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.conn = conn
        self._say = say
        self._close = close

    async def begin(self) -> None: ...

    async def write(self, name: str) -> None:
        await self.conn.execute(self._say(_write(name)))

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()

    async def rows(self) -> list[str]:
        answer = await self.conn.execute(self._say(READ))
        found = [row[0] for row in await _maybe(answer.fetchall())]
        await self.conn.rollback()
        return found

    async def close(self) -> None:
        await self.conn.close()
        if self._close is not None:
            await self._close()


class Asyncpg:
    """asyncpg, where a transaction is an object of its own."""

    def __init__(self, conn: Any, close: Callable[[], Awaitable[object]]) -> None:
        self.conn = conn
        self._close = close
        self._transaction: Any = None

    async def begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    async def write(self, name: str) -> None:
        await self.conn.execute(_write(name))

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def rows(self) -> list[str]:
        return [row[0] for row in await self.conn.fetch(READ)]

    async def close(self) -> None:
        await self._close()


async def _maybe(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value


# -- PostgreSQL


async def _psycopg(url: str) -> Visitor:
    return Plain(psycopg.connect(url))


async def _psycopg_async(url: str) -> Visitor:
    conn = await psycopg.AsyncConnection.connect(url)
    await conn.execute(TABLE)
    await conn.commit()
    return Async(conn)


async def _asyncpg(url: str) -> Visitor:
    conn = await asyncpg.connect(url)
    await conn.execute(TABLE)
    return Asyncpg(conn, conn.close)


async def _asyncpg_pool(url: str) -> Visitor:
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    conn = await pool.acquire()
    await conn.execute(TABLE)

    async def close() -> None:
        await pool.release(conn)
        await pool.close()

    return Asyncpg(conn, close)


def _of(driver: str, url: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


async def _alchemy(url: str, of: Callable[[sqlalchemy.Engine], Any]) -> Visitor:
    engine = sqlalchemy.create_engine(_of("psycopg", url), poolclass=NullPool)
    return Plain(of(engine), sqlalchemy.text, engine.dispose)


async def _alchemy_async(url: str, driver: str, kind: str) -> Visitor:
    engine = create_async_engine(_of(driver, url), poolclass=NullPool)
    conn: Any
    if kind == "connection":
        conn = await engine.connect()
    else:
        sessions = async_sessionmaker(engine)
        conn = sessions() if kind == "session" else async_scoped_session(sessions, lambda: None)
    await conn.execute(sqlalchemy.text(TABLE))
    await conn.commit()
    return Async(conn, sqlalchemy.text, engine.dispose)


POSTGRES: Final[dict[str, Callable[[str], Awaitable[Visitor]]]] = {
    "psycopg": _psycopg,
    "psycopg-async": _psycopg_async,
    "asyncpg": _asyncpg,
    "asyncpg-pool": _asyncpg_pool,
    "alchemy-connection": lambda url: _alchemy(url, sqlalchemy.Engine.connect),
    "alchemy-session": lambda url: _alchemy(url, Session),
    "alchemy-scoped": lambda url: _alchemy(url, lambda engine: scoped_session(sessionmaker(engine))),
    **{
        f"alchemy-async-{kind}-{driver}": partial(_alchemy_async, driver=driver, kind=kind)
        for kind in ("connection", "session", "scoped")
        for driver in ("psycopg", "asyncpg")
    },
}


# -- SQLite; the URL is the file's path


def _engine(path: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"sqlite:///{path}", module=library, poolclass=NullPool)


async def _alchemy_sqlite(path: str, of: Callable[[sqlalchemy.Engine], Any]) -> Visitor:
    engine = _engine(path)
    return Plain(of(engine), sqlalchemy.text, engine.dispose)


async def _by_hand(path: str) -> Visitor:
    return ByHand(library.connect(path, isolation_level=None))


async def _by_the_driver(path: str) -> Visitor:
    return Plain(library.connect(path))


SQLITE: Final[dict[str, Callable[[str], Awaitable[Visitor]]]] = {
    "by-hand": _by_hand,
    "by-the-driver": _by_the_driver,
    "alchemy-connection": lambda path: _alchemy_sqlite(path, sqlalchemy.Engine.connect),
    "alchemy-session": lambda path: _alchemy_sqlite(path, Session),
    "alchemy-scoped": lambda path: _alchemy_sqlite(path, lambda engine: scoped_session(sessionmaker(engine))),
}
