"""Takes down everything that can be asked of a store, so that a test can say that not one byte has changed."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from limpet.core.jobs.view import Query
from limpet.stores.asking import attempts_of, find_all
from limpet.stores.base import Store


async def whole(store: Store) -> tuple[Any, ...]:
    """Jobs with their notes, attempts, leases, sessions, counters, gates, causes and logs, but for the refusals."""
    jobs = await find_all(store, Query(None, limit=500))
    return (
        jobs,
        [await attempts_of(store, job.id) for job in jobs],
        [await store.held(job.session or "") for job in jobs],
        await store.sessions(),
        replace(await store.count(queues=True), stale=0),
        await store.gates(),
        await store.causes(),
        await store.read("audit", limit=1_000),
        await store.read("event", limit=1_000),
    )
