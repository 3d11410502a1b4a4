"""Chooses the one SQLite library of this process and refuses connections of any other (docs/adr)."""

from __future__ import annotations

import importlib
import os
import sqlite3 as stdlib
from types import ModuleType
from typing import Final

from limpet.core.errors import InvalidOption, UsageError, WrongContext

FIXED_VERSION: Final = (3, 51, 3)  # older ones can corrupt a WAL when writers and checkpointers meet
BACKPORTS: Final = (
    ((3, 50, 7), (3, 51, 0)),
    ((3, 44, 6), (3, 45, 0)),
)  # but for these, from the first to before the last
SWITCH: Final = "LIMPET_SQLITE"
# A wheel where there is one; Linux ARM64 and macOS on Intel have none, and their C compiler is needed.
INSTALL: Final = "pip install 'pysqlite3>=0.6.1', with a C compiler where it has no wheel"


def load() -> ModuleType:
    """The DB-API module to use: pysqlite3, which bundles a fixed SQLite, else the standard library's.

    The environment can force either of them.
    """
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "stdlib", "pysqlite3"):
        raise InvalidOption(f"{SWITCH} is {wanted!r}", fix="write stdlib or pysqlite3, or unset it")
    if wanted == "stdlib":
        return stdlib
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError as error:
        if wanted:
            raise UsageError(f"{SWITCH} is 'pysqlite3', which is not installed", fix=INSTALL) from error
        return stdlib


library = load()

# Without an adapter the driver looks for one by failing attribute lookups, about 1 µs for every bytes and None
# that is bound: half the cost of an insert. Each stays what it is.
library.register_adapter(bytes, bytes)
library.register_adapter(type(None), {}.get)


def is_safe() -> bool:
    """False for a SQLite that can corrupt a file that several processes write."""
    return is_fixed(version())


def is_fixed(found: tuple[int, ...]) -> bool:
    """Whether a version of SQLite is without the WAL-reset bug."""
    return found >= FIXED_VERSION or any(first <= found < end for first, end in BACKPORTS)


def version() -> tuple[int, ...]:
    """The version of the SQLite that is linked in."""
    return tuple(library.sqlite_version_info)


def refuse_other(connection: type) -> None:
    """Refuse a class of connections that is not the library's in use.

    Two copies of SQLite in one process break POSIX locks on a shared file: both can hold the write
    lock, and a committed row can vanish.
    """
    if not issubclass(connection, library.Connection):
        kind = f"{connection.__module__}.{connection.__qualname__}"
        raise WrongContext(
            f"a connection of {kind} cannot share the store's file: {library.__name__} is the SQLite library in use",
            fix=f"open it with {library.__name__} (SQLAlchemy: create_engine(url, module={library.__name__}))",
        )
