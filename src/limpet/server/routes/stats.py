"""Routes about everything together: the counters, the audit log, and what is wrong."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from limpet.core.errors import InvalidOption, UnknownQueue
from limpet.core.records.log import AuditRecord, FindingRecord
from limpet.core.records.queue import StatsRecord
from limpet.core.records.scale import ScaleRecord
from limpet.core.records.series import By, SeriesRecord
from limpet.ops.events import ANY_LINE, AuditFilter
from limpet.server.call import Call
from limpet.server.parameters import MOST_SEQ, Newest, QueueName, given
from limpet.server.route import Route, get

After = Annotated[int, Meta(ge=0, le=MOST_SEQ, description="The first lines after this seq, instead of the newest.")]


class AuditLines(Newest, frozen=True, forbid_unknown_fields=True):
    """Which lines of the audit log."""

    after: After | UnsetType = UNSET  # None would be read from the text null
    before: Annotated[int, Meta(ge=0, le=MOST_SEQ, description="Only lines before this seq.")] | UnsetType = UNSET
    kind: Annotated[str, Meta(description="Only of this kind, or how it begins: job.cancel, job.")] = ""
    actor: Annotated[str, Meta(description="Only of those with this in their name.")] = ""
    job: Annotated[str, Meta(description="Only about this job, by its id or the end of it.")] = ""

    @property
    def wanted(self) -> AuditFilter:
        """The lines that are asked for."""
        return AuditFilter(self.kind, self.actor, self.job)


class Series(Struct, frozen=True, forbid_unknown_fields=True):
    """Which counts over time."""

    last: Annotated[str, Meta(description="Of the last so long: 5m to 35d.")] = "1h"
    step: (
        Annotated[str, Meta(description="How long a point is: 1m, 15m, 1h. Left out: about a hundred points.")] | None
    ) = None
    by: Annotated[By, Meta(description="Also one line for each queue, or for each task.")] | UnsetType = UNSET
    queue: QueueName | None = None
    task: Annotated[str, Meta(description="Only of this task.")] | None = None
    ago: Annotated[str, Meta(description="End so long ago: 7d for the same hours of last week.")] = "0"


async def shown(call: Call[None, None]) -> StatsRecord:
    """Counters that sum up to what was enqueued, and how attempts ended during the last minute."""
    return await call.operator.stats()


async def series(call: Call[Series, None]) -> SeriesRecord:
    """Rates, run and wait times and depths over time, for charts: up to 35 days, by minutes for the last 48 hours.

    What workers counted arrives with their heartbeats, within 5 s. The last point may not be over.
    """
    return await call.operator.series(**given(call.query))


async def audit(call: Call[AuditLines, None]) -> list[AuditRecord]:
    """The newest lines of the audit log, oldest first: who did what, to which job, queue or limit, and why."""
    asked = call.query
    if asked.after is not UNSET and (asked.before is not UNSET or asked.wanted != ANY_LINE):
        raise InvalidOption(
            "after reads line by line, and stands alone", fix="give no before, kind, actor or job with it"
        )
    after = None if asked.after is UNSET else asked.after
    before = None if asked.before is UNSET else asked.before
    since_ms = await call.since_ms(asked.since)
    return await call.operator.audit(after, asked.limit, since_ms=since_ms, before=before, wanted=asked.wanted)


async def doctor(call: Call[None, None]) -> list[FindingRecord]:
    """What is wrong, or could be, with the engine, the queues and the tasks' own declarations."""
    return await call.operator.doctor(call.settings)


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """Which queues one kind of worker serves, and how large such a worker is."""

    queue: Annotated[str, Meta(description="One, or several with commas between them; left out: all.")] | None = None
    per_worker: Annotated[int, Meta(ge=1, le=100_000, description="Jobs that one worker runs at once.")] = 100


async def scale(call: Call[Scale, None]) -> ScaleRecord:
    """How many workers the jobs of some queues want now: for KEDA, and whatever else starts and ends workers."""
    asked = call.query
    queues = [name for name in (asked.queue or "").split(",") if name]
    return await call.operator.scale(*queues, per_worker=asked.per_worker)


ROUTES: Final[tuple[Route, ...]] = (
    get("/stats", "viewer", shown),
    get("/stats/series", "viewer", series),
    get("/scale", "viewer", scale, errors=(UnknownQueue,)),
    get("/audit", "viewer", audit, of="audit"),
    get("/doctor", "viewer", doctor, of="findings"),
)
