"""Remembers where one measurement takes place: a fresh folder with a fresh store, removed at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.ours.tasks import Inbox, app
from holdfast import JobSpec

CHUNK = 5_000  # jobs per call when a backlog is laid out


class Place:
    """A store of its own for one measurement, and the inbox for what handlers say."""

    def __init__(self, sync: str) -> None:
        os.makedirs(".bench", exist_ok=True)
        self.folder = os.path.abspath(tempfile.mkdtemp(prefix="run-", dir=".bench"))
        self.url = f"sqlite:///{self.folder}/jobs.db?sync={sync}"
        self.inbox = Inbox(self.folder)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The app works on this store inside the block."""
        app.rebind(self.url)
        await app.store.open()
        try:
            yield
        finally:
            await app.close()

    def remove(self) -> None:
        self.inbox.close()
        shutil.rmtree(self.folder)


async def fill(job: JobSpec, count: int) -> None:
    """Store `count` equal jobs."""
    for start in range(0, count, CHUNK):
        await app.enqueue_many([job] * min(CHUNK, count - start))
