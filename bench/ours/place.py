"""Remembers where one measurement takes place: the store that the driver has laid out, and the inbox beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.ours.tasks import Inbox, app
from limpet import JobSpec

CHUNK = 5_000  # jobs per call when a backlog is laid out


class Place:
    """One of the run's stores, by number, and the inbox for what handlers say."""

    def __init__(self, template: str, number: int = 0) -> None:
        self.url = template.format(n=number)
        self.inbox = Inbox(os.environ["LIMPET_BENCH_FOLDER"], number)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """The app works on this store inside the block."""
        app.rebind(self.url)
        await app.store.open()
        try:
            yield
        finally:
            await app.close()

    def leave(self) -> None:
        """No process sends stamps any more; the driver clears the place."""
        self.inbox.close()


async def fill(job: JobSpec[Any], count: int) -> None:
    """Store `count` equal jobs."""
    for start in range(0, count, CHUNK):
        await app.enqueue_many([job] * min(CHUNK, count - start))
