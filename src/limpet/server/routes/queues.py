"""Routes about queues: their depth, age and pauses, how long their jobs stay, and their shares."""

from __future__ import annotations

from typing import Final

from limpet.core.errors import UnknownQueue
from limpet.core.records.queue import QueueRecord, RetentionRecord, WeightRecord
from limpet.server.call import Call
from limpet.server.route import Route, get


async def listed(call: Call[None, None]) -> list[QueueRecord]:
    """Every queue: its jobs by state, its age, and what rules it."""
    return await call.operator.queues()


async def shown(call: Call[None, None]) -> QueueRecord:
    """One queue."""
    return await call.operator.queue(call.path["name"])


async def retention(call: Call[None, None]) -> list[RetentionRecord]:
    """Queues whose finished jobs stay for another time than those of all others."""
    return await call.operator.retention()


async def weights(call: Call[None, None]) -> list[WeightRecord]:
    """Queues and tenants whose turns serve more than one job."""
    return await call.operator.weights()


ROUTES: Final[tuple[Route, ...]] = (
    get("/queues", "viewer", listed, of="queues"),
    get("/queues/{name}", "viewer", shown, etag=True, errors=(UnknownQueue,)),
    get("/retention", "viewer", retention, of="retention"),
    get("/weights", "viewer", weights, of="weights"),
)
