"""The app of the test of hooks: jobs that die, by their handlers or with their workers, and a hook that notes it."""

from __future__ import annotations

import asyncio
import os

from limpet import Dead, JobRecord, Limpet
from tests.chaos.chaos_jobs import leave_trace

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


@app.task(name="dies", retry=1)
async def dies(ms: int) -> None:
    await asyncio.sleep(ms / 1000)
    leave_trace("end")
    raise Dead("as it was told")


@app.task(name="fragile", max_lost=1)
async def fragile(ms: int) -> None:
    """It dies if its worker is killed meanwhile."""
    await asyncio.sleep(ms / 1000)
    leave_trace("end")


@app.on_dead(name="alert")
async def alert(job: JobRecord) -> None:
    assert job.state == "dead"
    leave_trace("heard", job.id)
