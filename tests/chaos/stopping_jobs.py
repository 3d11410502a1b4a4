"""The app of the chaos test of breakers: a dependency that is down."""

from __future__ import annotations

import asyncio
import os

from limpet import Breaker, Limpet
from tests.chaos.limit_jobs import leave

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


@app.task(name="call", retry=5, breaker=Breaker("provider", failures=5, cooldown=3_600))
async def call() -> None:
    """Leaves a line, and fails."""
    leave("calls")
    await asyncio.sleep(0.002)
    raise ConnectionError("the provider is down")
