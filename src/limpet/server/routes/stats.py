"""Routes about everything together: the counters, the audit log, and what is wrong."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from limpet.core.records.log import AuditRecord, FindingRecord
from limpet.core.records.queue import StatsRecord
from limpet.server.call import Call
from limpet.server.parameters import MOST_SEQ, Newest
from limpet.server.route import Route, get

After = Annotated[int, Meta(ge=0, le=MOST_SEQ, description="The first lines after this seq, instead of the newest.")]


class AuditLines(Newest, frozen=True, forbid_unknown_fields=True):
    """Which lines of the audit log."""

    after: After | UnsetType = UNSET  # None would be read from the text null


async def shown(call: Call[None, None]) -> StatsRecord:
    """Counters that sum up to what was enqueued, and how attempts ended during the last minute."""
    return await call.operator.stats()


async def audit(call: Call[AuditLines, None]) -> list[AuditRecord]:
    """The newest lines of the audit log, oldest first: who did what, to which job, queue or limit, and why."""
    asked = call.query
    after = None if asked.after is UNSET else asked.after
    return await call.operator.audit(after, asked.limit, since_ms=await call.since_ms(asked.since))


async def doctor(call: Call[None, None]) -> list[FindingRecord]:
    """What is wrong, or could be, with the engine, the queues and the tasks' own declarations."""
    return await call.operator.doctor()


ROUTES: Final[tuple[Route, ...]] = (
    get("/stats", "viewer", shown),
    get("/audit", "viewer", audit, of="audit"),
    get("/doctor", "viewer", doctor, of="findings"),
)
