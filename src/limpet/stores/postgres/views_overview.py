"""Answers questions about the store as a whole: counters, causes, queues; and where one job stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from limpet.core.gate import Gate
from limpet.core.jobs.lease import Serves
from limpet.core.jobs.view import CauseView, Counts, Inspection
from limpet.stores.overview import AHEAD, counts_of, inspection_of, with_queues
from limpet.stores.postgres.definition_cache import DefinitionCache
from limpet.stores.postgres.find import attempts, views
from limpet.stores.postgres.gates import gates
from limpet.stores.postgres.names import NAMES

if TYPE_CHECKING:
    from limpet.stores.postgres.client import Client

LANES: Final = 10_000  # of one queue that are looked at for its oldest ready job
POSTS: Final = 10_000  # that are looked at for what no claim has filed yet

LANE_STATES: Final[dict[int, Literal["idle", "active", "waiting"]]] = {
    NAMES["IDLE"]: "idle",
    NAMES["ACTIVE"]: "active",
    NAMES["WAITING"]: "waiting",
}

COUNTS: Final = "SELECT * FROM lp.counts_1()"
CAUSES: Final = "SELECT * FROM lp.causes_1(%b::text, %b::integer)"
QUEUES: Final = "SELECT * FROM lp.queues_1(%b::integer, %b::integer)"
STANDING: Final = """SELECT * FROM lp.standing_1(%b::bytea, %b::bigint, %b::bigint, %b::text[], %b::integer,
  %b::integer, %b::bigint)"""

_gates = msgspec.json.Decoder(list[Gate]).decode
_serves = msgspec.json.Decoder(Serves).decode


async def causes(client: Client, queue: str | None, limit: int) -> list[CauseView]:
    """Dead jobs by origin, most frequent first."""
    return [CauseView(*row) for row in await client.rows(CAUSES, (queue, limit), verb="causes")]


async def count(client: Client) -> Counts:
    """All counters."""
    return counts_of(await client.rows(COUNTS, verb="count"))


async def queues(client: Client) -> Counts:
    """All counters, and every queue by name."""
    oldest: dict[str, int | None] = dict(await client.rows(QUEUES, (LANES, POSTS), verb="count"))
    return with_queues(await count(client), oldest, await gates(client, "queue:"))


async def inspect(client: Client, definitions: DefinitionCache, id: bytes, now_ms: int | None) -> Inspection | None:
    """All facts about a job."""
    (job,) = await views(client, definitions, [id], verb="inspect")
    if job is None:
        return None
    keys = (*job.lane.class_gates, *job.lane.lane_gates)
    asked = (id, job.lane.id, job.due_at_ms, keys, AHEAD, POSTS, now_ms)
    lane, ahead, parents, states, ruling, live = await client.row(STANDING, asked, verb="inspect")
    return inspection_of(
        job,
        LANE_STATES[lane],
        ahead,
        zip(parents or (), states or (), strict=True),
        _gates(ruling or "[]"),
        map(_serves, live or ()),
        await attempts(client, id),
    )
