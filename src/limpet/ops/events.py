"""Reads logs for people, the newest last: what became of breakers, limits and budgets, and who changed what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from limpet.core.jobs.view import Entry
from limpet.core.text.event_text import facts_of
from limpet.stores.asking import last_seq
from limpet.stores.base import Store

_PAGE: Final = 1_000


async def latest(
    store: Store,
    limit: int,
    wanted: Callable[[Entry], bool] = lambda entry: True,
    *,
    log: Literal["audit", "event"] = "event",
    since_ms: int = 0,
) -> list[Entry]:
    """The newest lines of a log that are wanted, oldest first; none from before `since_ms`."""
    found: list[Entry] = []
    until = await last_seq(store, log)
    while until > 0 and len(found) < limit:
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
