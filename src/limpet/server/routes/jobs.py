"""Routes about jobs: lists by query, one with everything about it, why it waits, what the logs say of it."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.access.refusal import TooManyWaiting
from limpet.core.errors import AmbiguousId, JobNotFound
from limpet.core.records.explanation import Explanation
from limpet.core.records.job import JobDetail, JobPage
from limpet.core.records.log import JobHistory
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.parameters import Search
from limpet.server.route import Route, get

NAMED: Final = (JobNotFound, AmbiguousId)  # what an id in a path may be


class Wait(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for the end of the job."""

    wait: Annotated[int, Meta(ge=0, le=60, description="Answer when the job has finished, or after these seconds.")] = 0


class Asked(Search, frozen=True, forbid_unknown_fields=True):
    """Which jobs: those that match, or these."""

    ids: Annotated[
        tuple[str, ...], Meta(max_length=500, description="These, as they are now; instead of a query.")
    ] = ()


async def listed(call: Call[Asked, None]) -> JobPage:
    """A page of jobs that match a query, newest first; or the jobs of some ids, in their order."""
    if call.query.ids:
        return await call.operator.those(call.query.ids)
    return await call.operator.jobs(call.query.q, limit=call.query.limit, cursor=call.query.cursor)


async def shown(call: Call[Wait, None]) -> JobDetail:
    """Everything about one job, by its id or the unique end of it; with `wait`, once it has finished."""
    if call.query.wait:
        with call.places.one():
            await call.unless_over(call.operator.wait(call.path["id"], call.query.wait))
    return await call.operator.job(call.path["id"])


async def explained(call: Call[None, None]) -> Explanation:
    """Why the job is not running, or what became of it: in words, and as facts."""
    return await call.operator.explain(call.path["id"])


async def history(call: Call[None, None]) -> JobHistory:
    """What the audit log and the event log say of the job, oldest first."""
    return await call.operator.history(call.path["id"])


ROUTES: Final[tuple[Route, ...]] = (
    get("/jobs", "viewer", listed, errors=(InvalidQuery,)),
    get("/jobs/{id}", "viewer", shown, etag=True, errors=(*NAMED, TooManyWaiting)),
    get("/jobs/{id}/explain", "viewer", explained, errors=NAMED),
    get("/jobs/{id}/events", "viewer", history, errors=NAMED),
)
