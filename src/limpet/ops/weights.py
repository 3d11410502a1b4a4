"""Decides how large the share of a queue or a tenant is: how many jobs one turn of it serves."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.jobs.view import Control, Page, Query, Term
from limpet.core.tasks.template import checked_key
from limpet.ops.names import unknown_gate_note
from limpet.stores.base import Store

KIND: Final = "weight"
MOST: Final = 1_000  # a turn longer than this is a queue that starves the others


class Weight(Struct, frozen=True):
    """One queue ("queue:mail") or tenant ("tenant:acme") and its share; all others have 1."""

    name: str
    weight: int


async def weights(store: Store) -> list[Weight]:
    """Every queue and tenant that has another share than 1, by name."""
    found = [Weight(one.name, msgspec.json.decode(one.value, type=int)) for one in await store.controls(KIND)]
    return [one for one in found if one.weight != 1]


async def set_weight(store: Store, name: str, weight: int) -> Weight:
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
    return Weight(name, weight)


async def unused(store: Store, name: str) -> str:
    """A warning if no job of this queue or tenant exists yet, else an empty string."""
    kind, _, rest = name.partition(":")
    if kind == "queue":
        return await unknown_gate_note(store, name)
    page = await store.find(Query(terms=(Term("tenant", rest),), limit=1))
    return f"no job of tenant {rest!r} is there; its share counts when one comes" if page == Page(()) else ""
