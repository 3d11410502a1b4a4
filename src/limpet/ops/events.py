"""Reads logs for people, the newest last: what became of breakers, limits and budgets, and who changed what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

from msgspec import Struct

from limpet.core.jobs.ids import id_text
from limpet.core.jobs.view import Entry
from limpet.core.records.log import AuditRecord, EventRecord, JobHistory
from limpet.core.redaction.redaction import Redaction
from limpet.core.text.event_text import facts_of
from limpet.stores.asking import last_seq
from limpet.stores.base import Store

Log = Literal["audit", "event"]

LOGS: Final[tuple[Log, ...]] = ("audit", "event")
LOOKED_AT: Final = 10  # pages of each log that are looked at for one job
_PAGE: Final = 1_000


async def latest(
    store: Store,
    limit: int,
    wanted: Callable[[Entry], bool] = lambda entry: True,
    *,
    log: Log = "event",
    since_ms: int = 0,
    before: int | None = None,
) -> list[Entry]:
    """The newest lines of a log that are wanted, oldest first; none from before `since_ms`, nor from that seq on."""
    found: list[Entry] = []
    async for page in pages_back(store, log, before):
        found = [entry for entry in page if entry.at_ms >= since_ms and wanted(entry)] + found
        if len(found) >= limit or (page and page[0].at_ms < since_ms):
            break
    return found[-limit:]


async def pages_back(store: Store, log: Log, before: int | None = None) -> AsyncIterator[list[Entry]]:
    """A log page by page, the newest page first, each oldest first; with `before` only lines before that seq.

    New lines do not move what is read. Lines that were pruned are not asked for.
    """
    oldest, last = await store.read(log, limit=1), await last_seq(store, log)
    until = last if before is None else min(last, before - 1)
    while oldest and until >= oldest[0].seq:
        after = max(0, until - _PAGE)
        yield [entry for entry in await store.read(log, after, _PAGE) if entry.seq <= until]
        until = after


class AuditFilter(Struct, frozen=True):
    """Which lines of the audit log are wanted; what is empty asks nothing."""

    kind: str = ""  # or how it begins: job is job.cancel, job.retry, …
    actor: str = ""  # or a part of the name
    job: str = ""  # its id, or the end of it

    def fits(self, entry: Entry) -> bool:
        """Whether a line is wanted."""
        return (
            (not self.kind or f"{entry.kind}.".startswith(f"{self.kind.removesuffix('.')}."))
            and self.actor.casefold() in entry.actor.casefold()
            and (not self.job or (entry.job is not None and id_text(entry.job).endswith(self.job)))
        )


ANY_LINE: Final = AuditFilter()


def is_about(entry: Entry, gates: frozenset[str] | None, kinds: tuple[str, ...] = ()) -> bool:
    """Whether an event is of one of these kinds, by their beginnings, and about one of these gates; None: any."""
    return (not kinds or entry.kind.startswith(kinds)) and (gates is None or facts_of(entry).get("key") in gates)


async def history(store: Store, id: bytes, redaction: Redaction) -> JobHistory:
    """What the logs say of one job; logs have no index of jobs, so their newest pages are looked at."""
    complete, found = True, dict[Log, list[Entry]]()
    for log in LOGS:
        found[log], pages = [], 0
        async for page in pages_back(store, log):
            if pages == LOOKED_AT:
                complete = False
                break
            found[log] = [entry for entry in page if entry.job == id] + found[log]
            pages += 1
    return JobHistory(
        audit=tuple(AuditRecord.of(entry, redaction) for entry in found["audit"]),
        events=tuple(map(EventRecord.of, found["event"])),
        complete=complete,
    )
