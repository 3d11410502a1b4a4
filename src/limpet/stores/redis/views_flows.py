"""Answers which flows there are, and how many of their jobs are in each state."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import FlowView
from limpet.stores.redis.find_by_name import of_flow
from limpet.stores.redis.find_cursor import Cursor
from limpet.stores.redis.keys import K
from limpet.stores.redis.record import head_of
from limpet.stores.redis.scripts import script

if TYPE_CHECKING:
    from limpet.stores.redis.client import Client

AT_ONCE: Final = 1_000  # jobs whose states are read in one step
TOGETHER: Final = 50  # flows that are looked at side by side
NOT_STORED: Final = ord("-")


async def flows(
    client: Client, key: bytes, ids: Sequence[bytes] | None, limit: int, before: bytes | None
) -> list[FlowView]:
    """Those of `ids` that have jobs, in order; without ids the newest before a flow."""
    cursor = Cursor(client, key, newest_first=False, batch=AT_ONCE, verb="flows")
    found: list[FlowView] = []
    if ids is not None:
        for at in range(0, len(ids), TOGETHER):
            found += await _looked_at(cursor, ids[at : at + TOGETHER])
        return found
    backwards = replace(cursor, newest_first=True)
    while len(found) < limit:
        # A flow whose last job is erased meanwhile is listed, and not found.
        page = await backwards.by_lex(K.flows.under(cursor.key), before, min(limit - len(found), TOGETHER))
        if not page:
            break
        before = page[-1]
        found += await _looked_at(cursor, page)
    return found


async def _looked_at(cursor: Cursor, flows: Sequence[bytes]) -> list[FlowView]:
    found = await asyncio.gather(*(_flow(cursor, flow) for flow in flows))
    return [view for view in found if view is not None]


async def _flow(cursor: Cursor, flow: bytes) -> FlowView | None:
    counts: Counter[State] = Counter()
    first: bytes | None = None
    async for batch in of_flow(cursor, flow):
        ids = [id for _, id in batch]
        states: bytes = await cursor.client.script("flows", script("views_states"), cursor.key, ("", b"".join(ids)))
        stored = [(id, STATES[code - 48]) for id, code in zip(ids, states, strict=True) if code != NOT_STORED]
        counts.update(state for _, state in stored)
        first = min((*(id for id, _ in stored), *([first] if first else [])), default=None)
    head = None if first is None else head_of(await cursor.call("HGET", K.jobs.under(cursor.key), first) or b"")
    return None if head is None else FlowView(flow, dict(counts), head.enqueued_ms)
