"""Routes about jobs: lists by query, one with everything about it."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.errors import AmbiguousId, JobNotFound
from limpet.core.records.job import JobDetail, JobPage
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.route import Route, get

Q = Annotated[str, Meta(description="Which jobs, in the query language: state:dead queue:mail task:send_*")]
Cursor = Annotated[str, Meta(description="The cursor of the page before.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="The most that is answered.")]


class Jobs(Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs."""

    q: Q = ""
    limit: Limit = 50
    cursor: Cursor | None = None


async def listed(call: Call[Jobs, None]) -> JobPage:
    """A page of jobs that match a query, newest first."""
    return await call.operator.jobs(call.query.q, limit=call.query.limit, cursor=call.query.cursor)


async def shown(call: Call[None, None]) -> JobDetail:
    """Everything about one job, by its id or the unique end of it."""
    return await call.operator.job(call.path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    get("/jobs", "viewer", listed, errors=(InvalidQuery,)),
    get("/jobs/{id}", "viewer", shown, etag=True, errors=(JobNotFound, AmbiguousId)),
)
