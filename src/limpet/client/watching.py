"""Watches one job until its end: a few reads a second for each watcher, and the store's own word of the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from limpet.core.errors import ResultTimeout
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import FINISHED
from limpet.core.jobs.view import JobView
from limpet.core.records.job import JobRecord
from limpet.core.redaction.redaction import Shown
from limpet.stores.base import Store

# Between two looks. A worker stores progress every 0.6 s (runtime/keeper.py), so that it is seen within a second.
LOOK_S: Final = 0.3


async def changes(
    store: Store, id: bytes, timeout_ms: int | None, show: Callable[[JobView], Awaitable[Shown]]
) -> AsyncGenerator[JobRecord | None, None]:
    """The job now, and after each change, as `show` shows it; the last is its end, or None when it is gone.

    Raises ResultTimeout when the time is over before that.
    """
    shown: JobRecord | None = None
    async with aclosing(_views(store, id, timeout_ms)) as views:
        async for view in views:
            if view is None:
                yield None
                return
            seen = JobRecord.of(await show(view))
            if shown is None or _news(seen) != _news(shown):
                shown = seen
                yield seen
            if view.state in FINISHED:
                return


def _news(seen: JobRecord) -> tuple[object, ...]:
    """What counts as a change."""
    return seen.state, seen.attempt, seen.lost, seen.progress, seen.cancel_requested, seen.waits_for


async def _views(store: Store, id: bytes, timeout_ms: int | None) -> AsyncGenerator[JobView | None, None]:
    """The job as it is now, and at each look from then on; at its end without delay."""
    loop = asyncio.get_running_loop()
    until_s = None if timeout_ms is None else loop.time() + timeout_ms / 1000
    (view,) = await store.get([id])
    yield view
    end = asyncio.create_task(store.watch(id, None), name="limpet-watch")
    try:
        while not end.done():
            left_s = LOOK_S if until_s is None else min(LOOK_S, until_s - loop.time())
            if left_s <= 0:
                raise ResultTimeout(
                    f"job {id_text(id)} has not finished after {(timeout_ms or 0) / 1000:g} s",
                    fix="the job continues; watch longer, or see why it waits with job.explain()",
                )
            await asyncio.wait({end}, timeout=left_s)
            yield end.result() if end.done() else (await store.get([id]))[0]
    finally:
        end.cancel()
        await asyncio.wait({end})
