"""Reads the event log for people: what became of breakers, limits and budgets, the newest last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.core.telling import facts_of
from holdfast.core.view import Entry
from holdfast.stores.asking import last_seq
from holdfast.stores.base import Store

_PAGE: Final = 1_000


async def latest(store: Store, limit: int, wanted: Callable[[Entry], bool] = lambda entry: True) -> list[Entry]:
    """The newest events that are wanted, oldest first."""
    found: list[Entry] = []
    until = await last_seq(store, "event")
    while until > 0 and len(found) < limit:
        since = max(0, until - _PAGE)
        page = [entry for entry in await store.read("event", since, _PAGE) if entry.seq <= until]
        found = [entry for entry in page if wanted(entry)] + found
        until = since
    return found[-limit:]


def is_about(entry: Entry, gates: frozenset[str] | None, kinds: tuple[str, ...] = ()) -> bool:
    """Whether an event is of one of these kinds, by their beginnings, and about one of these gates; None: any."""
    return (not kinds or entry.kind.startswith(kinds)) and (gates is None or facts_of(entry).get("gate") in gates)
