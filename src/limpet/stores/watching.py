"""Waits for the end of a job, the same way on every engine: told by a wake-up, else by a look once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from limpet.core.errors import ResultTimeout
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.state import FINISHED, State
from limpet.core.jobs.view import JobView
from limpet.stores.base import Store
from limpet.stores.waiters import Waiters

LOOK_S: Final = 1.0  # how soon a finished job is noticed whose wake-up was lost


async def finished_job(
    store: Store, sleepers: Waiters, id: bytes, begin: Awaitable[State | None], timeout_ms: int | None
) -> JobView | None:
    """The job when it has finished; None when it is gone.

    `begin` asks the engine to tell the end of the job, and answers its state now; `sleepers` expects it already.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
    try:
        state = await begin
        if state is None or state in FINISHED:
            return None if state is None else (await store.get([id]))[0]
        while True:
            left = LOOK_S if deadline is None else min(LOOK_S, deadline - loop.time())
            if left <= 0:
                raise ResultTimeout(
                    f"job {id_text(id)} is {state} after {(timeout_ms or 0) / 1000:g} s",
                    fix=f"the job is still {state}; wait longer, or see why with job.explain()",
                )
            await sleepers.sleep(id, left)
            (job,) = await store.get([id])
            if job is None or job.state in FINISHED:
                return job
            state = job.state
    finally:
        sleepers.forget(id)
