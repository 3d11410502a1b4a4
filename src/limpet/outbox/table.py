"""What a relay needs of the tables in the user's database, whichever it is; each kind has a room of its own."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib.resources import files
from typing import Final, Protocol

from msgspec import Struct

from limpet.core.errors import StoreUnreachable, UsageError
from limpet.core.text.log_line import Said
from limpet.outbox.place import Place
from limpet.outbox.row import Row
from limpet.stores.callers import Dialect
from limpet.stores.extras import extra_of, install_line

BATCH_BYTES = 4 * 1024 * 1024  # of one batch: far below the limit of a store, so that other calls wait briefly

Kind = tuple[str, str]  # queue and task


class Tally(Struct, frozen=True):
    """How an outbox stands: rows that will be relayed, rows that were set aside, the age of the oldest in the line."""

    waiting: int
    failed: int
    oldest_ms: int | None


class Failed(Struct, frozen=True):
    """A row that was set aside, and why."""

    id: str
    queue: str
    task: str
    error: str


class Turn(Protocol):
    """One relay's turn at the tables: what it changes is committed when the turn ends, all or nothing."""

    source: str  # names this outbox in the store
    batch: int  # the last number that was used

    @property
    def moved(self) -> bool:
        """True when it got that name elsewhere: this is a copy of that database, or what was brought here."""

    async def rename(self) -> None:
        """Have a new name from the end of this turn on; only while nothing is under way, which goes by the old one."""

    async def under_way(self) -> list[Row]:
        """The rows of that batch, in order, if it was not seen through."""

    async def fresh(self, limit: int, skip: Collection[Kind]) -> list[Row]:
        """The first rows of the line, in order, some MiB at most; without those of certain queues and tasks."""

    async def stamp(self, batch: int, seqs: Sequence[int]) -> None:
        """From the end of this turn on these rows are the batch that is under way; no rows: none is."""

    async def remove(self, seqs: Sequence[int]) -> None:
        """Delete rows that have arrived."""

    async def set_aside(self, seq: int, why: str) -> None:
        """Take a row out of the line, and keep it with what was wrong."""

    async def holds(self, ids: Sequence[str]) -> bool:
        """True when a job with one of these ids is in the line."""


class Table(Protocol):
    """The outbox of one namespace. Opened with the first call, and again after trouble, which is StoreUnreachable."""

    place: Place

    async def create(self) -> None:
        """Make what is missing of the tables."""

    def turn(self) -> AbstractAsyncContextManager[Turn | None]:
        """A turn; None while another relay has one."""

    async def wait(self, timeout_s: float) -> None:
        """Sleep until something may have been written since the last turn began, or the time is over."""

    async def tally(self) -> Tally:
        """How many wait, how many are set aside."""

    async def failed(self, limit: int) -> list[Failed]:
        """Rows that were set aside, in order."""

    async def retry_failed(self) -> int:
        """Put back into the line what was set aside, each row at its old place; how many."""

    async def close(self) -> None:
        """Let go of the connection. Idempotent; another call opens it again."""


_NAME: Final = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Statement name → SQL, with numbered marks for its values."""
    parts = _NAME.split((files("limpet.outbox") / "sql" / f"{dialect}.sql").read_text("utf-8"))
    return {name: _plain(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def schema(dialect: Dialect) -> str:
    """What makes the tables, for the reader's own migrations; each statement leaves alone what is there."""
    return statements(dialect)["create"] + ";\n"


def _plain(body: str) -> str:
    lines = [line for line in body.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";")


def open_table(place: Place, namespace: str) -> Table:
    """The tables at a place. Nothing is connected yet."""
    # Lazy: a driver is imported when its URL is met.
    if place.dialect == "sqlite":
        from limpet.outbox.sqlite import SqliteTable

        return SqliteTable(place, namespace)
    try:
        from limpet.outbox.postgres import PostgresTable
    except ImportError as error:
        extra = extra_of(error, "postgres")
        if extra is None:
            raise
        raise UsageError(f"{place.shown} needs a package that is not installed", fix=install_line(extra)) from error
    return PostgresTable(place, namespace)


logger: Final = logging.getLogger("limpet.outbox")


def outbox_log(level: int, event: str, **fields: object) -> None:
    """One line; formatters find the same facts as a mapping under `record.limpet`."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s%s", event, Said(fields), extra={"limpet": {"event": event, **fields}})


def named_at(home: str) -> str:
    """A new name for an outbox, which says where it was given."""
    return f"{secrets.token_hex(8)}@{home}"


def is_named_at(source: str, home: str) -> bool:
    """True for a name that was given here."""
    return source.partition("@")[2] == home


def missing(place: Place) -> UsageError:
    """The error of a database without the tables."""
    return UsageError(
        f"the database {place.shown} has no table limpet_outbox",
        fix="limpet outbox --create makes it; --sql prints it for your own migrations",
    )


def away(place: Place, error: BaseException) -> StoreUnreachable:
    """The error of a database that cannot be used now."""
    return StoreUnreachable(
        f"the outbox {place.shown} cannot be reached: {str(error).strip() or type(error).__name__}", verb="outbox"
    )
