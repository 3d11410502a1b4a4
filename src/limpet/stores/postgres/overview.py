"""Answers questions about the store as a whole: counters, causes, queues; and where one job stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from limpet.core.gate import Gate
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.view import CauseView, Counts, Inspection
from limpet.stores.overview import AHEAD, counts_of, inspection_of, with_queues
from limpet.stores.postgres.find import attempts, views
from limpet.stores.postgres.gates import gates
from limpet.stores.postgres.known import Known

if TYPE_CHECKING:
    from limpet.stores.postgres.route import Route

LANES: Final = 10_000  # of one queue that are looked at for its oldest ready job
POSTS: Final = 10_000  # that are looked at for what no claim has filed yet

COUNTS: Final = "SELECT * FROM lp.counts_1()"
CAUSES: Final = "SELECT * FROM lp.causes_1(%b::text, %b::integer)"
QUEUES: Final = "SELECT * FROM lp.queues_1(%b::integer, %b::integer)"
STANDING: Final = """SELECT * FROM lp.standing_1(%b::bytea, %b::bigint, %b::bigint, %b::text[], %b::integer,
  %b::integer, %b::bigint)"""

_gates = msgspec.json.Decoder(list[Gate]).decode
_serves = msgspec.json.Decoder(Serves).decode


async def causes(route: Route, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    return [CauseView(*row) for row in await route.rows(CAUSES, (queue, limit), verb="causes")]


async def count(route: Route) -> Counts:
    """All counters."""
    return counts_of(await route.rows(COUNTS, verb="count"))


async def queues(route: Route) -> Counts:
    """All counters, and every queue by name."""
    oldest: dict[str, int | None] = dict(await route.rows(QUEUES, (LANES, POSTS), verb="count"))
    return with_queues(await count(route), oldest, await gates(route, "queue:"))


async def inspect(route: Route, known: Known, id: bytes, now_ms: int | None) -> Inspection | None:
    """All facts about a job."""
    (job,) = await views(route, known, [id], verb="inspect")
    if job is None:
        return None
    keys = (*job.lane.class_gates, *job.lane.lane_gates)
    asked = (id, job.lane.id, job.due_at_ms, keys, AHEAD, POSTS, now_ms)
    lane, ahead, parents, states, ruling, live = await route.row(STANDING, asked, verb="inspect")
    return inspection_of(
        job,
        ("idle", "active", "waiting")[lane],
        ahead,
        zip(parents or (), states or (), strict=True),
        _gates(ruling or "[]"),
        map(_serves, live or ()),
        await attempts(route, id),
    )
