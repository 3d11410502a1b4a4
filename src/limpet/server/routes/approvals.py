"""Routes about jobs that wait for a person."""

from __future__ import annotations

from typing import Final

from limpet.core.records.wait import ApprovalPage
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.parameters import Search
from limpet.server.route import Route, get


async def listed(call: Call[Search, None]) -> ApprovalPage:
    """What jobs that match a query ask people now, those with the nearest end first."""
    return await call.waits.asked(call.query.q, limit=call.query.limit, cursor=call.query.cursor)


ROUTES: Final[tuple[Route, ...]] = (get("/approvals", "viewer", listed, errors=(InvalidQuery,)),)
