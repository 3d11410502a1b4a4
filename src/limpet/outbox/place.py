"""Decides which database an outbox URL names, and refuses one where the store needs no outbox."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from limpet.core.errors import UsageError
from limpet.stores.callers import Dialect
from limpet.stores.open import SqliteUrl, parse_url
from limpet.stores.shown import redacted

_POSTGRES: Final = ("postgresql", "postgres")
_EXAMPLE: Final = "write postgresql://user@host/database, or sqlite:///app.db for a file"


class Place(Struct, frozen=True):
    """The database that holds an outbox: `database` is its name, or a file's absolute path."""

    dialect: Dialect
    url: str
    database: str | None  # None: PostgreSQL's libraries decide, from the environment

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return redacted(self.url)


def parse_outbox(url: str) -> Place:
    """Read an outbox URL; what cannot work is refused by name."""
    scheme = url.partition(":")[0].lower()
    if scheme in _POSTGRES:
        return Place("postgresql", url, _database_of(urlsplit(url)))
    if scheme.partition("+")[0] in _POSTGRES:
        plain = f"postgresql:{url.partition(':')[2]}"
        raise UsageError(f"{redacted(url)!r} names a driver, and an outbox has its own", fix=f"write {redacted(plain)}")
    if scheme != "sqlite":
        raise UsageError(
            f"{redacted(url)!r} is not the URL of an outbox, which lies in your own database", fix=_EXAMPLE
        )
    parsed = parse_url(url)
    assert isinstance(parsed, SqliteUrl)
    if parsed.path is None:
        raise UsageError(
            f"{url!r} is a database in memory, where no relay could find the jobs", fix="write sqlite:///app.db"
        )
    return Place("sqlite", url, os.path.abspath(parsed.path))


def refuse_needless(place: Place, store_url: str) -> None:
    """A store in the same database takes part in the caller's transaction itself: nothing is to be relayed."""
    if _same_database(place, store_url):
        raise UsageError(
            f"the outbox {place.shown} is in the store's own database, where no outbox is needed",
            fix="leave outbox= out: conn= enqueues inside your transaction as it is",
        )


def _database_of(parts: SplitResult) -> str | None:
    named = parse_qs(parts.query).get("dbname", [""])[-1]
    return named or unquote(parts.path[1:]) or None


def _same_database(place: Place, store_url: str) -> bool:
    if place.dialect == "sqlite":
        if store_url.partition(":")[0].lower() != "sqlite":
            return False
        parsed = parse_url(store_url)
        path = parsed.path if isinstance(parsed, SqliteUrl) else None
        return path is not None and os.path.realpath(path) == os.path.realpath(place.database or "")
    if store_url.partition(":")[0].lower() not in _POSTGRES:
        return False
    return _address(place.url) == _address(store_url)


def _address(url: str) -> tuple[list[str], str | None]:
    """Where a PostgreSQL URL leads, as far as the URL alone can say."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2].lower().split(",")
    return ([host if ":" in host else f"{host or 'localhost'}:5432" for host in hosts], _database_of(parts))
