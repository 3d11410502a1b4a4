"""Routes about everything together: the counters."""

from __future__ import annotations

from typing import Final

from limpet.core.records.queue import StatsRecord
from limpet.server.call import Call
from limpet.server.route import Route, get


async def shown(call: Call[None, None]) -> StatsRecord:
    """Counters that sum up to what was enqueued, and how attempts ended during the last minute."""
    return await call.operator.stats()


ROUTES: Final[tuple[Route, ...]] = (get("/stats", "viewer", shown),)
