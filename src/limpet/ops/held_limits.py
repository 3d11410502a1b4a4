"""Reads which limits a provider's pushback holds back, so that agents slow down before they are refused, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from limpet.core.gate import FOREVER_MS
from limpet.core.jobs.job import Lane
from limpet.core.records.lease import HeldLimit
from limpet.core.records.record import moment
from limpet.core.text.duration import text_of_ms
from limpet.stores.base import Store

MOST: Final = 5  # that one answer names


async def held_limits(store: Store, now_ms: int, lane: Lane | None = None) -> tuple[HeldLimit, ...]:
    """The limits that are held now: those of jobs like this one, or the first of all."""
    if lane is None:
        found = await store.gates("limit:")
    else:
        keys = [f"limit:{key}" for key in (*lane.limits, *lane.keys)]
        found = await store.gates(keys=keys) if keys else []
    held = [gate for gate in found if now_ms < gate.held_until_ms < FOREVER_MS]
    return tuple(
        HeldLimit(limit=gate.key.removeprefix("limit:"), until=moment(gate.held_until_ms)) for gate in held[:MOST]
    )


def held_text(held: Sequence[HeldLimit], now_ms: int) -> str:
    """What an agent should make of them; nothing when none is held."""
    if not held:
        return ""
    words = (f"{one.limit} for {text_of_ms(max(0, round(one.until.timestamp() * 1000) - now_ms))}" for one in held)
    return f"slow down, the provider holds back: {', '.join(words)}"
