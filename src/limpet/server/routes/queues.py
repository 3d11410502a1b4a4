"""Routes about queues: their depth, age and pauses."""

from __future__ import annotations

from typing import Final

from limpet.core.records.queue import QueueRecord
from limpet.server.call import Call
from limpet.server.route import Route, get


async def listed(call: Call[None, None]) -> list[QueueRecord]:
    """Every queue: its jobs by state, its age, and what rules it."""
    return await call.operator.queues()


ROUTES: Final[tuple[Route, ...]] = (get("/queues", "viewer", listed, of="queues"),)
