"""Lists every route; what is not here is not answered, not documented and not tested."""

from __future__ import annotations

from typing import Final

from limpet.server.route import Route
from limpet.server.routes import events, health, jobs, queues, stats

ROUTES: Final[tuple[Route, ...]] = (
    *jobs.ROUTES,
    *queues.ROUTES,
    *stats.ROUTES,
    *events.ROUTES,
    *health.ROUTES,
)
