"""Routes about flows: jobs that wait for each other and are shown as one."""

from __future__ import annotations

from typing import Final

from limpet.core.errors import AmbiguousId, FlowNotFound
from limpet.core.records.flow import FlowDetail, FlowPage
from limpet.server.call import Call
from limpet.server.parameters import Page
from limpet.server.route import Route, get


async def listed(call: Call[Page, None]) -> FlowPage:
    """A page of flows, newest first: the progress of each, and its jobs by state."""
    return await call.flows.page(call.query.limit, call.query.cursor)


async def shown(call: Call[None, None]) -> FlowDetail:
    """One flow with all its nodes, by its id, the unique end of it, or the id of a job of it."""
    return await call.flows.detail(call.path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    get("/flows", "viewer", listed),
    get("/flows/{id}", "viewer", shown, etag=True, errors=(FlowNotFound, AmbiguousId)),
)
