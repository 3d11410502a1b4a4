"""Decides how large the share of a queue or a tenant is: how many jobs one turn of it serves."""

from __future__ import annotations

from typing import Final

import msgspec

from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control, Page, Query, Term
from limpet.core.records.queue import WeightChange, WeightRecord
from limpet.core.tasks.template import checked_key
from limpet.ops.names import unknown_gate_note
from limpet.stores.base import Store

KIND: Final = "weight"
MOST: Final = 1_000  # a turn longer than this is a queue that starves the others


async def weights(store: Store) -> list[WeightRecord]:
    """Every queue and tenant that has another share than 1, by name."""
    found = {one.name: msgspec.json.decode(one.value, type=int) for one in await store.controls(KIND)}
    return [WeightRecord(name=name, weight=weight) for name, weight in found.items() if weight != 1]


async def set_weight(store: Store, name: str, weight: int) -> WeightChange:
    """Give a queue or a tenant this share, from the next claim on."""
    kind, _, rest = name.partition(":")
    if kind not in ("queue", "tenant") or not rest:
        raise InvalidOption(f"{name!r:.80} has no share", fix="name queue:NAME or tenant:NAME")
    checked_key(rest, what=f"the name after '{kind}:'")
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MOST:
        raise InvalidOption(
            f"a weight must be an integer ≥ 1, got {weight!r}", fix=f"use 1 (the usual one) to {MOST:,}"
        )
    await store.put_control(Control(KIND, name, msgspec.json.encode(weight)))
    note = await unused(store, name) if weight != 1 else ""
    return WeightChange(name=name, weight=weight, notes=(note,) if note else ())


async def unused(store: Store, name: str) -> str:
    """A warning if no job of this queue or tenant exists yet, else an empty string."""
    kind, _, rest = name.partition(":")
    if kind == "queue":
        return await unknown_gate_note(store, name)
    page = await store.find(Query(terms=(Term("tenant", rest),), limit=1))
    return f"no job of tenant {rest!r} is there; its share counts when one comes" if page == Page(()) else ""
