"""Knows what a caller's database connection really is, and which callers' transactions this code has joined.

No driver is imported here: a caller with a connection has imported its driver, so each is looked up among the modules
that are loaded. Nothing here begins, commits, rolls back or repeats anything. A driver that begins with the next
statement (psycopg, SQLAlchemy) begins with ours as it would with the caller's own.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Literal, Protocol, TypeVar

from limpet.core.errors import WrongContext

T = TypeVar("T")

Dialect = Literal["postgresql", "sqlite"]
Rows = list[tuple[Any, ...]]

ABORTED: Final = "25P02"  # PostgreSQL's code for a statement in a transaction that has failed before

_MARK: Final = re.compile(r"\$(\d+)")
_ENGINES: Final[dict[Dialect, str]] = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}
_KNOWN: Final = (
    "a connection of psycopg, asyncpg or pysqlite3, or a Connection, Session, AsyncConnection or AsyncSession of "
    "SQLAlchemy over one of them"
)


class Caller:
    """A caller's connection, whichever driver it is of.

    Statements are written with $1, $2 and so on. Their values are bytes, str, int or None; on PostgreSQL also lists of
    these, where the statement says of what ($1::bytea[]).
    """

    dialect: Dialect
    awaitable: bool = False  # its calls really wait, so only code with an event loop can make them

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self.name = _name_of(conn)

    async def run(self, sql: str, args: Sequence[Any] = ()) -> Rows:
        """The rows of one statement; none for a statement that has none.

        The driver's own errors come through; only what it says of a transaction that has failed before is the same
        WrongContext for all of them.
        """
        with self._unless_failed():
            return await self._run(sql, args)

    async def refuse_outside_transaction(self) -> None:
        """Raise WrongContext when the next statement would be committed by itself, or can no longer be."""
        raise NotImplementedError

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        raise NotImplementedError

    @property
    def library(self) -> type:
        """On SQLite: the class of connections of its driver, found without opening anything."""
        raise NotImplementedError

    @property
    def raw(self) -> Any:
        """On SQLite: the connection of the driver itself."""
        raise NotImplementedError

    def expect(self, dialect: Dialect) -> None:
        """Refuse a connection to another kind of database than the store's."""
        if self.dialect != dialect:
            raise WrongContext(
                f"a {self.name} to {_ENGINES[self.dialect]} cannot carry jobs of a store in {_ENGINES[dialect]}",
                fix="pass a connection to the store's own database",
            )

    def _alone(self, fix: str) -> WrongContext:
        return WrongContext(
            f"the {self.name} is in no transaction, so there is nothing to commit the job with", fix=fix
        )

    def _failed(self) -> WrongContext:
        return WrongContext(
            f"the transaction of the {self.name} has failed with an earlier statement and can store nothing any more",
            fix="roll it back, or back to a savepoint, then begin again",
        )

    @contextmanager
    def _unless_failed(self) -> Iterator[None]:
        """Not every driver can be asked for the state of its transaction, but each has it in what it raises."""
        try:
            yield
        except Exception as error:
            if self._means_failed(error):
                raise self._failed() from error
            raise

    def _means_failed(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == ABORTED

    def _refuse_pipeline(self, conn: Any) -> None:
        """Of psycopg: answers come late there, and so would the refusal of a job."""
        if conn.info.pipeline_status != sys.modules["psycopg.pq"].PipelineStatus.OFF:
            raise WrongContext(
                f"the {self.name} is in pipeline mode, where no statement is answered at once",
                fix="leave the block of conn.pipeline() for this; the transaction may stay open",
            )


class _Sqlite(Caller):
    dialect = "sqlite"

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        cursor = self._conn.cursor()
        cursor.row_factory = None  # our rows are tuples, whatever the caller's rows are
        return cursor.execute(_numbered(sql), args).fetchall()  # type: ignore[no-any-return]  # tuples, as said

    async def refuse_outside_transaction(self) -> None:
        # With an isolation level the driver begins by itself before the next statement that writes.
        if not self._conn.in_transaction and self._conn.isolation_level is None:
            raise self._alone('write your rows first, or conn.execute("BEGIN IMMEDIATE")')

    @property
    def library(self) -> type:
        return type(self._conn)

    @property
    def raw(self) -> Any:
        return self._conn


class _Psycopg(Caller):
    dialect = "postgresql"

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        psycopg = sys.modules["psycopg"]
        with psycopg.RawCursor(self._conn, row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
            cursor.execute(sql, args)
            return cursor.fetchall() if cursor.description else []

    async def refuse_outside_transaction(self) -> None:
        self._refuse_pipeline(self._conn)
        status = self._conn.info.transaction_status
        kinds = sys.modules["psycopg.pq"].TransactionStatus
        if status == kinds.INERROR:
            raise self._failed()
        if status == kinds.IDLE and self._conn.autocommit:
            raise self._alone("with conn.transaction(): around both, or a connection without autocommit")


class _PsycopgAsync(_Psycopg):
    awaitable = True

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        psycopg = sys.modules["psycopg"]
        async with psycopg.AsyncRawCursor(self._conn, row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
            await cursor.execute(sql, args)
            return await cursor.fetchall() if cursor.description else []


class _Asyncpg(Caller):
    dialect = "postgresql"
    awaitable = True

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        return [tuple(row) for row in await self._conn.fetch(sql, *args)]

    async def refuse_outside_transaction(self) -> None:
        if not self._conn.is_in_transaction():
            raise self._alone("async with conn.transaction(): around both")


class _Alchemy(Caller):
    """A Connection or Session of SQLAlchemy.

    Statements go through it and not around it: some of its drivers begin only with the first one that it sends, and
    it commits nothing unless it knows that something began.
    """

    def __init__(self, conn: Any) -> None:
        super().__init__(conn)
        dialect = self._bind().dialect
        if dialect.name not in _ENGINES:
            raise WrongContext(
                f"a {self.name} to {dialect.name} cannot carry jobs",
                fix="pass a connection to the store's own database",
            )
        self.dialect = dialect.name
        self._driver = dialect.driver
        self._dbapi = dialect.dbapi
        if self.dialect == "postgresql" and self._driver not in _TRANSLATIONS:
            raise WrongContext(
                f"a {self.name} over the driver {self._driver} cannot carry jobs",
                fix="use postgresql+psycopg:// or, with an event loop, postgresql+asyncpg://",
            )

    def _bind(self) -> Any:
        """Its engine, found without connecting."""
        if not self._is_session():
            return self._conn
        try:
            return self._conn.get_bind()
        except sys.modules["sqlalchemy.exc"].UnboundExecutionError as error:
            raise WrongContext(
                f"the {self.name} has no one engine of its own",
                fix="pass session.connection(bind_arguments={'mapper': ...}) instead",
            ) from error

    def _is_session(self) -> bool:
        return _is(self._conn, "sqlalchemy.orm", "Session")

    def _connection(self) -> Any:
        return self._conn.connection() if self._is_session() else self._conn

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        return _rows(self._connection().exec_driver_sql(*self._translated(sql, args)))

    async def refuse_outside_transaction(self) -> None:
        with self._unless_failed():
            self._refuse_unfit(self._connection())

    def _means_failed(self, error: Exception) -> bool:
        """It wraps what its driver raises, and after a flush that failed it asks the driver nothing."""
        if isinstance(error, sys.modules["sqlalchemy.exc"].PendingRollbackError):
            return True
        return getattr(getattr(error, "orig", None), "sqlstate", None) == ABORTED

    def _translated(self, sql: str, args: Sequence[Any]) -> tuple[str, Any]:
        if self.dialect == "sqlite":
            return _numbered(sql), tuple(args)
        return _TRANSLATIONS[self._driver](sql, args)

    def _refuse_unfit(self, connection: Any) -> None:
        if self._driver.startswith("psycopg"):
            self._refuse_pipeline(connection.connection.driver_connection)
        driver = connection.connection.dbapi_connection
        if self.dialect == "sqlite":
            alone = driver.isolation_level is None and not driver.in_transaction
        else:
            alone = driver.autocommit
        if alone:
            raise self._alone('do not set isolation_level="AUTOCOMMIT" for this')

    @property
    def library(self) -> type:
        return self._dbapi.Connection  # type: ignore[no-any-return]  # of whichever module the engine was made with

    @property
    def raw(self) -> Any:
        connection = self._connection()
        if not connection.in_transaction():
            connection.exec_driver_sql("SELECT 1")  # it begins, so that its commit will be one
        return connection.connection.driver_connection


class _AlchemyAsync(_Alchemy):
    """An AsyncConnection or AsyncSession of SQLAlchemy."""

    awaitable = True

    def __init__(self, conn: Any) -> None:
        super().__init__(conn)
        if self.dialect == "sqlite":
            raise WrongContext(
                f"a {self.name} over {self._driver} cannot carry jobs: a thread of its own uses Python's own sqlite3",
                fix="use a plain Session or Connection: create_engine(url, module=pysqlite3.dbapi2)",
            )

    def _is_session(self) -> bool:
        return _is(self._conn, "sqlalchemy.ext.asyncio", "AsyncSession")

    async def _joined(self) -> Any:
        return await self._conn.connection() if self._is_session() else self._conn

    async def _run(self, sql: str, args: Sequence[Any]) -> Rows:
        connection = await self._joined()
        return _rows(await connection.exec_driver_sql(*self._translated(sql, args)))

    async def refuse_outside_transaction(self) -> None:
        with self._unless_failed():
            self._refuse_unfit((await self._joined()).sync_connection)


def caller_of(conn: object) -> Caller:
    """What `conn` is; one that cannot carry jobs is refused by name."""
    if _is(conn, "sqlalchemy.orm", "scoped_session") or _is(conn, "sqlalchemy.ext.asyncio", "async_scoped_session"):
        conn = conn()  # type: ignore[operator]  # the session of this thread or task
    for module, name, kind in _KINDS:
        if _is(conn, module, name):
            return kind(conn)
    raise WrongContext(f"a {_name_of(conn)} cannot carry jobs", fix=f"pass {_KNOWN}")


def is_awaitable(conn: object) -> bool:
    """True for a connection that only code with an event loop can use."""
    return any(kind.awaitable and _is(conn, module, name) for module, name, kind in _KINDS) or _is(
        conn, "sqlalchemy.ext.asyncio", "async_scoped_session"
    )


def run_here(coroutine: Coroutine[object, None, T], conn: object, *, instead: str) -> T:
    """The value of a coroutine that uses `conn`, in this thread and without an event loop.

    A connection belongs to its caller's thread, so no other thread may do this. It works since what never really
    waits is done after its first step; `instead` is the advice for a connection whose calls do wait.
    """
    if is_awaitable(conn):
        coroutine.close()
        raise WrongContext(f"a {_name_of(conn)} can only be awaited", fix=instead)
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise WrongContext("this would have to wait, and not for the connection it was given", fix=instead)


class Joined(Protocol):
    """A caller's transaction that one of our verbs has become part of."""

    @property
    def is_open(self) -> bool:
        """False once it has ended."""


# Of this task or thread and what it calls, not of others on the same loop: those may wait for it, this one may not.
_joined: Final[ContextVar[tuple[Joined, ...]]] = ContextVar("limpet_joined", default=())


has_joined: Final = _joined.get  # empty where `joined` has nothing to look at, as almost everywhere


def joined() -> tuple[Joined, ...]:
    """The transactions that this code has joined and that are still open."""
    return tuple(each for each in has_joined() if each.is_open)


def join(transaction: Joined) -> None:
    """From here on this code is inside `transaction`, until that ends."""
    _joined.set((*joined(), transaction))


def apart() -> Context:
    """A context for a task that works for others too, outside of what this code has joined."""
    context = copy_context()
    context.run(_joined.set, ())
    return context


_KINDS: Final[tuple[tuple[str, str, type[Caller]], ...]] = (
    ("psycopg", "Connection", _Psycopg),
    ("psycopg", "AsyncConnection", _PsycopgAsync),
    ("asyncpg.connection", "Connection", _Asyncpg),
    ("asyncpg.pool", "PoolConnectionProxy", _Asyncpg),
    ("pysqlite3.dbapi2", "Connection", _Sqlite),
    ("sqlite3", "Connection", _Sqlite),
    ("sqlalchemy.engine", "Connection", _Alchemy),
    ("sqlalchemy.orm", "Session", _Alchemy),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _AlchemyAsync),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _AlchemyAsync),
)


def _is(conn: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(conn, getattr(loaded, name))


def _name_of(conn: object) -> str:
    kind = type(conn)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _rows(result: Any) -> Rows:
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


def _numbered(sql: str) -> str:
    return _MARK.sub(r"?\1", sql)


def _named(sql: str, args: Sequence[Any]) -> tuple[str, Any]:
    """For psycopg's usual cursors, where a lone % would be a mark too."""
    marked = _MARK.sub(r"%(a\1)s", sql.replace("%", "%%"))
    return marked, {f"a{number}": value for number, value in enumerate(args, 1)}


def _as_written(sql: str, args: Sequence[Any]) -> tuple[str, Any]:
    return sql, tuple(args)


_TRANSLATIONS: Final = {"psycopg": _named, "psycopg_async": _named, "asyncpg": _as_written}
