"""Opens the database file: durability settings, and the layout brought up to this release under a lock."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import quote

from limpet.core.errors import SchemaOutdated, StoreUnreachable
from limpet.stores.match import argument_compares
from limpet.stores.packed import extra_matches
from limpet.stores.sqlite.library import is_safe, library
from limpet.stores.sqlite.statements import sources, with_prefix

Sync = Literal["full", "normal"]

logger = logging.getLogger("limpet.stores.sqlite")

LAYOUT: Final = 1  # the number of the newest schema_NNN.sql
BUSY_MS: Final = 5_000
_MIN_CLIENT: Final = re.compile(r"^-- Min client: (\d+)$", re.MULTILINE)


class Executes(Protocol):
    """A connection, or what stands for one."""

    def execute(self, sql: str, args: Sequence[Any] = ..., /) -> sqlite3.Cursor: ...


def connect(path: str | None, sync: Sync, prefix: str, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """A connection that autocommits nothing by itself; the layout is there when it returns."""
    if path is not None and not os.path.isdir(os.path.dirname(path)):
        raise StoreUnreachable(
            f"the folder of {path} does not exist", verb="open", fix=f"mkdir -p {os.path.dirname(path)}"
        )
    is_new = path is not None and not os.path.exists(path)
    conn: sqlite3.Connection = library.connect(
        path or ":memory:",
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        timeout=busy_ms / 1000,
    )
    try:
        if path is not None:
            _use_log(conn, path)
            conn.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
            # With a checkpointer the writer's own copy of the log is a backstop that finds little to do.
            pages = 12_000 if is_safe() else 4_000
            conn.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            conn.execute("PRAGMA journal_size_limit = 67108864")
        conn.execute("PRAGMA temp_store = MEMORY")
        conn.create_function("extra_matches", 3, extra_matches)
        conn.create_function("argument_compares", 4, argument_compares)
        conn.execute("PRAGMA cache_size = -65536")
        migrate(conn, prefix)
    except BaseException:
        conn.close()
        raise
    if is_new:
        logger.info("made a new store: %s", path)
    return conn


def is_foreign(path: str) -> bool:
    """True for a database that has tables, but no layout of ours. It is only read."""
    try:
        with closing(library.connect(f"file:{quote(path)}?mode=ro", uri=True)) as conn:
            names = [name for (name,) in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    except library.Error:
        return False  # what is wrong with it is said when it is opened as a store
    return bool(names) and not any(name.startswith("limpet_") and name.endswith("_meta") for name in names)


def _use_log(conn: sqlite3.Connection, path: str) -> None:
    if conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    # Two that bring in the log of a new file at once are refused without waiting: they come one after the other.
    with open(f"{path}-lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnreachable(
            f"{path} cannot use a write-ahead log (journal mode is {mode})", verb="open", fix="put it on a local disk"
        )


def migrate(conn: sqlite3.Connection, prefix: str) -> None:
    """Replay what is missing. Several processes may open a file at once: the write lock lets one do it."""
    if not _is_behind(conn, prefix):
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the lock: the process that had it may be of a later release than this one.
        if _is_behind(conn, prefix):
            _replay(conn, prefix)
        conn.execute("COMMIT")
    except BaseException:
        conn.execute("ROLLBACK")
        raise


def _is_behind(conn: sqlite3.Connection, prefix: str) -> bool:
    found = layout_of(conn, prefix)
    found.refuse_if_later("open")
    return found.number < LAYOUT


def _replay(conn: sqlite3.Connection, prefix: str) -> None:
    found = layout_of(conn, prefix)
    texts = [sources()[f"schema_{number:03}"] for number in range(found.number + 1, LAYOUT + 1)]
    for text in texts:
        for statement in split(with_prefix(text, prefix)):
            conn.execute(statement)
    least = max(found.min_client, *(int(number) for text in texts for number in _MIN_CLIENT.findall(text)), 1)
    meta = with_prefix("limpet_meta", prefix)
    conn.execute(f"INSERT OR REPLACE INTO {meta} VALUES ('layout', ?), ('min_client', ?)", (str(LAYOUT), str(least)))


class Layout(NamedTuple):
    """What is stored: the number of the newest schema file, and the lowest such number whose releases may work on."""

    number: int = 0
    min_client: int = 0

    def refuse_if_later(self, verb: str) -> None:
        """Raise for a layout on which this release would do harm. A later one that only adds is none."""
        if self.min_client > LAYOUT:
            raise SchemaOutdated(
                f"the store has layout {self.number}, this release knows {LAYOUT}", verb=verb, fix="upgrade limpet"
            )


def layout_of(conn: Executes, prefix: str) -> Layout:
    """The layout that is stored; 0 for none."""
    meta = with_prefix("limpet_meta", prefix)
    if conn.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (meta,)).fetchone() is None:
        return Layout()
    stored = dict(conn.execute(f"SELECT key, value FROM {meta} WHERE key IN ('layout', 'min_client')").fetchall())
    return Layout(int(stored.get("layout", 0)), int(stored.get("min_client", 0)))


def split(script: str) -> list[str]:
    """The statements of a schema file: it holds no triggers and no strings with semicolons."""
    lines = [line.split(" -- ")[0] for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]
