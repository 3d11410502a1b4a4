"""Lists every route; what is not here is not answered, not documented and not tested."""

from __future__ import annotations

from typing import Final

from limpet.server.route import Route
from limpet.server.routes import (
    approvals,
    dead,
    flows,
    health,
    jobs,
    limits,
    queues,
    schedules,
    stats,
    tasks,
    tokens,
)

ROUTES: Final[tuple[Route, ...]] = (
    *jobs.ROUTES,
    *dead.ROUTES,
    *queues.ROUTES,
    *limits.ROUTES,
    *schedules.ROUTES,
    *flows.ROUTES,
    *tasks.ROUTES,
    *approvals.ROUTES,
    *stats.ROUTES,
    *tokens.ROUTES,
    *health.ROUTES,
)
