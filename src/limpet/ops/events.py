"""Reads logs for people, the newest last: what became of breakers, limits and budgets, and who changed what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from limpet.core.jobs.view import Entry
from limpet.core.records.log import AuditRecord, EventRecord, JobHistory
from limpet.core.text.event_text import facts_of
from limpet.stores.asking import last_seq
from limpet.stores.base import Store

LOOKED_AT: Final = 10_000  # lines of each log that are looked at for one job
LOGS: Final[tuple[Literal["audit", "event"], ...]] = ("audit", "event")
_PAGE: Final = 1_000


async def latest(
    store: Store,
    limit: int,
    wanted: Callable[[Entry], bool] = lambda entry: True,
    *,
    log: Literal["audit", "event"] = "event",
    since_ms: int = 0,
    most: int | None = None,
) -> list[Entry]:
    """The newest lines of a log that are wanted, oldest first; none from before `since_ms`, nor beyond the `most`."""
    found: list[Entry] = []
    until = await last_seq(store, log)
    end = 0 if most is None else until - most
    while until > max(0, end) and len(found) < limit:
        after = max(0, until - _PAGE)
        page = [entry for entry in await store.read(log, after, _PAGE) if entry.seq <= until]
        found = [entry for entry in page if entry.at_ms >= since_ms and wanted(entry)] + found
        if page and page[0].at_ms < since_ms:
            break
        until = after
    return found[-limit:]


def is_about(entry: Entry, gates: frozenset[str] | None, kinds: tuple[str, ...] = ()) -> bool:
    """Whether an event is of one of these kinds, by their beginnings, and about one of these gates; None: any."""
    return (not kinds or entry.kind.startswith(kinds)) and (gates is None or facts_of(entry).get("key") in gates)


async def history(store: Store, id: bytes) -> JobHistory:
    """What the logs say of one job; logs have no index of jobs, so their newest lines are looked at."""
    audit, events = [
        await latest(store, LOOKED_AT, lambda entry: entry.job == id, log=log, most=LOOKED_AT) for log in LOGS
    ]
    return JobHistory(
        audit=tuple(map(AuditRecord.of, audit)),
        events=tuple(map(EventRecord.of, events)),
        complete=max([await last_seq(store, log) for log in LOGS]) <= LOOKED_AT,
    )
