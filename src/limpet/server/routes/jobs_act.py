"""Routes that correct jobs: one by its id, or all that a query means, after a dry run."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from limpet.core.errors import InvalidOption
from limpet.core.records.bulk import BulkReport
from limpet.core.text.duration import to_ms
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.parameters import Act, Bulk, Time
from limpet.server.route import Route, post
from limpet.server.routes.jobs import NAMED

Force = Annotated[bool, Meta(description="Take running jobs away from their workers.")]
Unique = Annotated[bool, Meta(description="Without: the new job takes no unique key.")]
Forget = Annotated[tuple[str, ...], Meta(description='Recorded steps that shall run again; ["*"]: all.')]
Args = Annotated[dict[str, Any], Meta(description="All arguments, in place of the old ones.")]
Patch = Annotated[dict[str, Any], Meta(description="Some arguments, in place of the old ones.")]


class Cancel(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to cancel."""

    force: Force = False


class CancelMany(Bulk, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which jobs to cancel, and how."""

    force: Force = False


class Retry(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to run a dead job again."""

    delay: Time = 0
    args: Args | None = None
    patch: Patch | None = None
    forget: Forget = ()


class RetryMany(Bulk, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead jobs to run again, and how."""

    delay: Time = 0
    args: Args | None = None
    patch: Patch | None = None
    forget: Forget = ()


class Rerun(Act, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to run a finished job as a new one."""

    unique: Unique = True


class RerunMany(Bulk, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which finished jobs to run as new ones, and how."""

    unique: Unique = True


def _how(body: Struct) -> dict[str, Any]:
    """The words of the body that every one of these verbs of `Operator` takes by the same name."""
    return {name: getattr(body, name) for name in body.__struct_fields__ if name not in ("q", "ids", "delay")}


async def cancel(call: Call[None, Cancel]) -> BulkReport:
    """Cancel a waiting job with its dependents; ask a running one to stop."""
    return await call.operator.cancel([call.path["id"]], **_how(call.body))


async def cancel_many(call: Call[None, CancelMany]) -> BulkReport:
    """Cancel all jobs that are meant."""
    return await call.operator.cancel(call.body.which, **_how(call.body))


async def retry(call: Call[None, Retry]) -> BulkReport:
    """Bring a dead job back, with its own arguments or others; a scheduled one starts now."""
    delay_ms = to_ms(call.body.delay, what="delay")
    return await call.operator.retry([call.path["id"]], delay_ms=delay_ms, **_how(call.body))


async def retry_many(call: Call[None, RetryMany]) -> BulkReport:
    """Bring all dead jobs back that are meant."""
    delay_ms = to_ms(call.body.delay, what="delay")
    return await call.operator.retry(call.body.which, delay_ms=delay_ms, **_how(call.body))


async def rerun(call: Call[None, Rerun]) -> BulkReport:
    """Make a new job of a succeeded or cancelled one."""
    return await call.operator.rerun([call.path["id"]], **_how(call.body))


async def rerun_many(call: Call[None, RerunMany]) -> BulkReport:
    """Make new jobs of all succeeded and cancelled ones that are meant."""
    return await call.operator.rerun(call.body.which, **_how(call.body))


async def discard(call: Call[None, Act]) -> BulkReport:
    """Remove a dead job for good; what it was stays in the audit log."""
    return await call.operator.discard([call.path["id"]], **_how(call.body))


async def discard_many(call: Call[None, Bulk]) -> BulkReport:
    """Remove all dead jobs for good that are meant."""
    return await call.operator.discard(call.body.which, **_how(call.body))


ONE: Final = {"errors": (*NAMED, InvalidOption), "example": {"reason": "wrong address"}}
MANY: Final = (*NAMED, InvalidQuery)
DRY: Final = {"dry_run": True}

ROUTES: Final[tuple[Route, ...]] = (
    post("/jobs/{id}/cancel", "operator", cancel, **ONE),
    post("/jobs/{id}/retry", "operator", retry, **ONE),
    post("/jobs/{id}/rerun", "operator", rerun, **ONE),
    post("/jobs/{id}/discard", "operator", discard, **ONE),
    post("/jobs/cancel", "operator", cancel_many, errors=MANY, example={"q": "task:send_* age>1h", **DRY}),
    post("/jobs/retry", "operator", retry_many, errors=MANY, example={"q": "state:dead error:Timeout", **DRY}),
    post("/jobs/rerun", "operator", rerun_many, errors=MANY, example={"q": "state:cancelled finished<1h", **DRY}),
    post("/jobs/discard", "operator", discard_many, errors=MANY, example={"q": "state:dead age>30d", **DRY}),
)
