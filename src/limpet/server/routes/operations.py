"""Routes about operations: actions on many jobs that run in the server, can be paused, and survive its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from limpet.core.errors import AmbiguousId, InvalidOption
from limpet.core.operations.operation import Verb
from limpet.core.records.bulk import BulkReport
from limpet.core.records.operation import OperationRecord
from limpet.ops.names import UnknownName
from limpet.ops.operations import OperationOver
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.parameters import Bulk, Limit, Time, Why, given
from limpet.server.route import Route, get, post


class Listed(Struct, frozen=True, forbid_unknown_fields=True):
    """Which operations."""

    finished: Annotated[bool, Meta(description="Those of the last seven days, too.")] = True
    limit: Limit = 50


class Start(Bulk, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to be done to which jobs, and how fast."""

    verb: Verb
    id: Annotated[str, Meta(description="A UUID; the same id again is the same operation.")] | None = None
    per_second: Annotated[float, Meta(gt=0, description="The most jobs a second.")] | None = None
    sample: Annotated[int, Meta(ge=1, description="Pause after this number, until a person continues.")] | None = None
    stop_after: Annotated[int, Meta(ge=1, description="Pause when this number died again.")] | None = None
    force: bool | None = None
    delay: Time | None = None
    args: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    forget: list[str] | None = None
    unique: bool | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Those of the verb."""
        return given(self, "verb", "q", "ids", "reason", "dry_run", "id")


async def listed(call: Call[Listed, None]) -> Sequence[OperationRecord]:
    """Operations, newest first."""
    return await call.operator.operations.list(finished=call.query.finished, limit=call.query.limit)


async def shown(call: Call[None, None]) -> OperationRecord:
    """One operation: how far it is, and how its sample stands."""
    return await call.operator.operations.get(call.path["id"])


async def start(call: Call[None, Start]) -> OperationRecord | BulkReport:
    """Store an operation, which this server begins at once; `dry_run` only says what it would act on."""
    body, operations = call.body, call.operator.operations
    if body.dry_run:
        return await operations.preview(body.verb, body.which, **body.options)
    return await operations.start(body.verb, body.which, reason=body.reason, id=body.id, **body.options)


async def pause(call: Call[None, Why]) -> OperationRecord:
    """Let it stop after the jobs that it is at; it can be continued."""
    return await call.operator.operations.pause(call.path["id"], reason=call.body.reason)


async def resume(call: Call[None, Why]) -> OperationRecord:
    """Let a paused or failed one continue."""
    return await call.operator.operations.resume(call.path["id"], reason=call.body.reason)


async def cancel(call: Call[None, Why]) -> OperationRecord:
    """Let it touch no more jobs. What it has done stays."""
    return await call.operator.operations.cancel(call.path["id"], reason=call.body.reason)


NAMED: Final = (UnknownName, AmbiguousId)

ROUTES: Final[tuple[Route, ...]] = (
    get("/operations", "viewer", listed, of="operations"),
    get("/operations/{id}", "viewer", shown, etag=True, errors=NAMED),
    post(
        "/operations",
        "operator",
        start,
        errors=(InvalidQuery, InvalidOption),
        example={"verb": "retry", "q": "state:dead error:Timeout", "per_second": 10, "sample": 20},
    ),
    post("/operations/{id}/pause", "operator", pause, errors=(*NAMED, OperationOver), example={}),
    post("/operations/{id}/resume", "operator", resume, errors=(*NAMED, OperationOver), example={}),
    post("/operations/{id}/cancel", "operator", cancel, errors=(*NAMED, OperationOver), example={}),
)
