"""Lists every route; what is not here is not answered, not documented and not tested."""

from __future__ import annotations

from typing import Final

from limpet.server.route import Route
from limpet.server.routes import (
    alerts,
    approvals,
    control,
    dead,
    dead_act,
    documents,
    events,
    flows,
    flows_act,
    health,
    jobs,
    jobs_act,
    jobs_new,
    leases,
    limits,
    metrics,
    operations,
    queues,
    redaction,
    schedules,
    schedules_act,
    session,
    stats,
    tasks,
    tokens,
    types,
)

ROUTES: Final[tuple[Route, ...]] = (
    *jobs.ROUTES,
    *jobs_new.ROUTES,
    *jobs_act.ROUTES,
    *leases.ROUTES,
    *dead.ROUTES,
    *dead_act.ROUTES,
    *operations.ROUTES,
    *queues.ROUTES,
    *limits.ROUTES,
    *control.ROUTES,
    *schedules.ROUTES,
    *schedules_act.ROUTES,
    *flows.ROUTES,
    *flows_act.ROUTES,
    *tasks.ROUTES,
    *types.ROUTES,
    *approvals.ROUTES,
    *alerts.ROUTES,
    *redaction.ROUTES,
    *stats.ROUTES,
    *events.ROUTES,
    *tokens.ROUTES,
    *session.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *documents.ROUTES,
)
