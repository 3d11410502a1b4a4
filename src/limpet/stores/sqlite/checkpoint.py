"""Copies the write-ahead log into the database beside the writer, so that no commit waits for it.

Not with a SQLite that has the WAL-reset bug: there only the writer itself copies, between two commits.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from limpet.core.errors import StoreError
from limpet.stores.sqlite.library import library
from limpet.stores.sqlite.link import Link

# Rows changed between two copies. A commit of one job changes about as many rows as it logs pages, a bulk ten
# times as many: so the log grows by at most this number of pages, and the writer's own copy finds little to do.
EVERY: Final = 4_000
PAUSE_S: Final = 0.05


class Checkpointer:
    """One thread and connection, begun with the first copy: a process that writes little has none."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.due_at = EVERY  # changed rows in all at which the next copy is due
        self._due = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def copy(self, changes: int) -> None:
        """Ask for a copy, now that `changes` rows were changed in all. From the writer's thread."""
        if self._ended.is_set():
            return
        self.due_at = changes + EVERY
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="limpet-checkpoint", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            # A disk that is full or gone is met by the writer too, which says so.
            with suppress(library.Error, StoreError), self.link.use() as conn:
                conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if self._ended.wait(PAUSE_S):
                self.link.close()
                return

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._ended.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join()
