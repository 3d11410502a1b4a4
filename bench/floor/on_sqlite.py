"""SQLite alone: INSERT and COMMIT in the caller's thread, then a datagram to the other process's event loop."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, Final
from urllib.parse import parse_qs

from bench.floor.mechanism import Told
from limpet.stores.sqlite.library import library

LAYOUT: Final = "CREATE TABLE IF NOT EXISTS floor (id INTEGER PRIMARY KEY, stamp BLOB NOT NULL)"
STORE: Final = "INSERT INTO floor (stamp) VALUES (?)"
# As our own connections have them (stores/sqlite/connection.py), so that a commit does the same.
SETTINGS: Final = ("journal_mode = WAL", "wal_autocheckpoint = 12000", "cache_size = -65536")
BYTES: Final = 64  # more than any stamp


class OnSqlite:
    """A connection to the file, and a socket beside the file."""

    def __init__(self, url: str) -> None:
        self._path, _, query = url.removeprefix("sqlite:///").partition("?")
        self._sync = parse_qs(query)["sync"][0]
        self._address = os.path.join(os.path.dirname(self._path), "floor")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    async def open(self) -> None:
        self._conn: Any = library.connect(self._path, isolation_level=None)
        for setting in (*SETTINGS, f"synchronous = {self._sync}"):
            self._conn.execute(f"PRAGMA {setting}")
        self._conn.execute(LAYOUT)

    async def store(self, stamp: bytes) -> None:
        self._conn.execute(STORE, (stamp,))  # a transaction of its own: it is committed when this returns

    async def send(self, stamp: bytes) -> None:
        await self.store(stamp)
        self._socket.sendto(stamp, self._address)

    async def listen(self, told: Told) -> None:
        self._socket.bind(self._address)
        asyncio.get_running_loop().add_reader(self._socket, lambda: told(self._socket.recv(BYTES)))
