"""The app of the chaos test of flows: nodes leave lines in a file, so that their order can be seen from outside."""

from __future__ import annotations

import asyncio
import os

from limpet import Limpet
from tests.chaos.chaos_jobs import leave_trace, let_go

app = Limpet(os.environ.get("CHAOS_URL", "sqlite://"))


@app.task(name="part")
async def part(n: int, more: int = 0) -> int:
    """One of many beside each other. The first ones wait for the test."""
    leave_trace("start")
    await let_go()
    await asyncio.sleep(0.05)
    leave_trace("end")
    return n + more


@app.task(name="join")
async def join(numbers: list[int]) -> int:
    """What waits for all of them."""
    leave_trace("start")
    await asyncio.sleep(0.02)
    leave_trace("end")
    return sum(numbers)
