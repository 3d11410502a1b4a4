"""Routes about schedules: what runs at times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct

from limpet.core.records.schedule import NextRun, ScheduleDetail, ScheduleRecord
from limpet.ops.names import UnknownName
from limpet.server.call import Call
from limpet.server.route import Route, get


class Runs(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs."""

    schedule: Annotated[str, Meta(description="Only of this schedule.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="The most runs that are answered.")] = 5


async def listed(call: Call[None, None]) -> Sequence[ScheduleRecord]:
    """Every schedule, by name."""
    return await call.schedules.list()


async def shown(call: Call[None, None]) -> ScheduleDetail:
    """One schedule, with what became of its last ticks."""
    return await call.schedules.get(call.path["name"])


async def coming(call: Call[Runs, None]) -> Sequence[NextRun]:
    """The next runs of one schedule, or of all of them together."""
    return await call.schedules.next(call.query.limit, name=call.query.schedule)


ROUTES: Final[tuple[Route, ...]] = (
    get("/schedules", "viewer", listed, of="schedules"),
    get("/schedules/{name}", "viewer", shown, etag=True, errors=(UnknownName,)),
    get("/runs", "viewer", coming, of="runs", errors=(UnknownName,)),
)
