"""Routes about dead letters: the jobs, and the causes that they share."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from limpet.core.endings.review import CauseStatus
from limpet.core.records.cause import CauseKey, CauseRecord
from limpet.core.records.decision import DecisionLog
from limpet.core.records.job import JobPage
from limpet.ops.causes import SeveralCauses
from limpet.ops.names import UnknownName
from limpet.ops.query import InvalidQuery
from limpet.server.call import Call
from limpet.server.parameters import MOST_SEQ, Limit, QueueName, Search, Since
from limpet.server.route import Route, get

Before = Annotated[int, Meta(ge=1, le=MOST_SEQ, description="The cursor of the part before.")]


class Causes(Struct, frozen=True, forbid_unknown_fields=True):
    """Which causes."""

    queue: QueueName | None = None
    status: Annotated[list[CauseStatus], Meta(description="Only of these; may stand several times.")] = []
    assignee: Annotated[str, Meta(description="Only of this person or team.")] | None = None
    since: Since | None = None
    hours: Annotated[bool, Meta(description="With the deaths in each of the last 24 hours.")] = False
    limit: Limit = 50


class Decided(Struct, frozen=True, forbid_unknown_fields=True):
    """Which decisions."""

    queue: QueueName | None = None
    since: Since | None = None
    before: Before | UnsetType = UNSET  # None would be read from the text null


class Which(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of several causes of one fingerprint."""

    queue: Annotated[str, Meta(description="Where one fingerprint has dead jobs of several queues.")] | None = None
    task: Annotated[str, Meta(description="And of several tasks.")] | None = None


async def listed(call: Call[Search, None]) -> JobPage:
    """A page of dead jobs that match a query, newest first."""
    return await call.operator.dead(call.query.q, limit=call.query.limit, cursor=call.query.cursor)


async def causes(call: Call[Causes, None]) -> list[CauseRecord]:
    """Dead jobs grouped by what killed them, most frequent first, with what people have said of each."""
    asked = call.query
    return await call.operator.desk.causes(
        asked.queue,
        status=asked.status or None,
        assignee=asked.assignee,
        limit=asked.limit,
        since_ms=await call.since_ms(asked.since),
        hours=asked.hours,
    )


async def cause(call: Call[Which, None]) -> CauseRecord:
    """One cause, by its fingerprint or the beginning of it."""
    return await call.operator.desk.cause(CauseKey(call.path["cause"], call.query.queue, call.query.task))


async def decisions(call: Call[Decided, None]) -> DecisionLog:
    """What was decided about dead jobs, by cause, and what became of the jobs."""
    asked = call.query
    since_ms = await call.since_ms(asked.since)
    return await call.operator.desk.decisions(asked.queue, since_ms=since_ms, before=asked.before or None)


ROUTES: Final[tuple[Route, ...]] = (
    get("/dead", "viewer", listed, errors=(InvalidQuery,)),
    get("/dead/decisions", "viewer", decisions),
    get("/dead/causes", "viewer", causes, of="causes"),
    get("/dead/causes/{cause}", "viewer", cause, etag=True, errors=(UnknownName, SeveralCauses)),
)
