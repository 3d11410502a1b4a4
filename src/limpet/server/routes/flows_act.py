"""Routes that correct flows: cancel all of one, run its dead jobs again, or from a node on."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from limpet.core.errors import AmbiguousId, FlowNotFound, InvalidOption
from limpet.core.records.bulk import BulkReport
from limpet.server.call import Call
from limpet.server.parameters import Act
from limpet.server.route import Route, post
from limpet.server.routes.jobs_act import Cancel


class RetryFlow(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What of a flow runs again."""

    nodes: Annotated[tuple[str, ...], Meta(description="These and all that wait for them; none: what is dead.")] = ()
    force: Annotated[bool, Meta(description="With `nodes`: take running jobs away from their workers.")] = False


async def cancel(call: Call[None, Cancel]) -> BulkReport:
    """Cancel every job of a flow that has not finished; running ones are asked to stop."""
    body, id = call.body, await call.flows.resolve(call.path["id"])
    return await call.flows.cancel(id, reason=body.reason, force=body.force, dry_run=body.dry_run)


async def retry(call: Call[None, RetryFlow]) -> BulkReport:
    """Run the dead nodes again, with what their death cancelled; or some nodes with all that wait for them."""
    body, id = call.body, await call.flows.resolve(call.path["id"])
    return await call.flows.retry(id, reason=body.reason, from_=body.nodes, force=body.force, dry_run=body.dry_run)


ERRORS: Final = (FlowNotFound, AmbiguousId, InvalidOption)

ROUTES: Final[tuple[Route, ...]] = (
    post("/flows/{id}/cancel", "operator", cancel, errors=ERRORS, example={"reason": "wrong input"}),
    post("/flows/{id}/retry", "operator", retry, errors=ERRORS, example={"nodes": ["render"], "dry_run": True}),
)
