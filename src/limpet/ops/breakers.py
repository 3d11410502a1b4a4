"""Lists breakers for people, page by page: what is open first."""

from __future__ import annotations

from msgspec import Struct

from limpet.core.errors import InvalidOption
from limpet.core.gate import CLOSED, OPEN, Gate, WorstFirst, rank_key
from limpet.core.text.storable import checked_text
from limpet.ops.declared import declared_gates
from limpet.ops.limits import breaker_gate_key
from limpet.stores.asking import MOST_GATES
from limpet.stores.base import Store

_KINDS = ("breaker:", "limit:", "queue:", "task:")


class GatePage(Struct, frozen=True):
    """One page of breakers, and of other gates that are open as one."""

    breakers: tuple[Gate, ...]
    cursor: str | None = None


async def breaker_page(store: Store, begins: str, limit: int, cursor: str | None) -> GatePage:
    """Those whose name begins so; breakers that live workers declare are there before their first job."""
    checked_text(begins, what="begins")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_GATES:
        raise InvalidOption(f"limit must be an integer from 1 to {MOST_GATES:,}, got {limit!r}", fix="limit=100")
    prefix = begins if begins in ("", *_KINDS) else breaker_gate_key(begins)
    after = (OPEN, "") if cursor is None else _read(cursor)
    found = {gate.key: gate for gate in await store.gates(prefix, worst_first=WorstFirst(limit + 1, after))}
    declared = {gate.key: gate for gate in await declared_gates(store) if _is_next(gate, prefix, after)}
    for gate in await store.gates(keys=sorted(declared)):
        del declared[gate.key]  # it has a place of its own
    listed = sorted((*found.values(), *declared.values()), key=rank_key)
    more = len(listed) > limit
    return GatePage(tuple(listed[:limit]), _written(listed[limit - 1]) if more else None)


def _is_next(gate: Gate, prefix: str, after: tuple[int, str]) -> bool:
    return gate.key.startswith("breaker:") and gate.key.startswith(prefix) and rank_key(gate) > after


def _written(last: Gate) -> str:
    place, key = rank_key(last)
    return f"{place}:{key}"


def _read(cursor: str) -> tuple[int, str]:
    place, colon, key = cursor.partition(":")
    if not colon or place not in map(str, range(OPEN, CLOSED + 1)):
        raise InvalidOption(f"the cursor {cursor!r} is not of a list of breakers", fix="pass what the last page said")
    return int(place), key
