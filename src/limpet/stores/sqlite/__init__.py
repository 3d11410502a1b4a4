"""The embedded engine: one SQLite file shared by any number of processes on one machine, or memory."""

from limpet.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
