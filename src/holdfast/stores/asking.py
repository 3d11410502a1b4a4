"""What several rooms ask of any store: the time by the engine's clock, and every job that a query finds."""

from __future__ import annotations

from typing import Final, Literal

from msgspec.structs import replace

from holdfast.core.lease import ClaimRequest, Serves
from holdfast.core.view import JobView, Query
from holdfast.stores.base import Store

_NOBODY: Final = ClaimRequest("holdfast.clock", Serves((), ()), limit=0, slots=0, seq=0, claimer="clock")


async def engine_now_ms(store: Store) -> int:
    """The time by the engine's clock, which decides when jobs are due, whatever the clock of this machine shows.

    A claim of a session that does not live gets nothing, changes nothing, and is told the time.
    """
    return (await store.claim(_NOBODY)).now_ms


async def last_seq(store: Store, log: Literal["audit", "event"]) -> int:
    """The seq of the newest line of a log, 0 when it is empty; found by halving, as a log may be long."""
    low, high = 0, 1
    while found := await store.read(log, high, 1):
        low, high = found[0].seq, 4 * found[0].seq
    while low < high:  # the newest is none after `high`, and none before `low`
        middle = (low + high) // 2
        found = await store.read(log, middle, 1)
        low, high = (found[0].seq, high) if found else (low, middle)
    return low


async def find_all(store: Store, query: Query, *, now_ms: int | None = None) -> list[JobView]:
    """Every job that the query finds, in its order, over as many pages as that takes."""
    found: list[JobView] = []
    while True:
        page = await store.find(query, now_ms=now_ms)
        found += page.jobs
        if page.cursor is None:
            return found
        query = replace(query, cursor=page.cursor)
