"""Decides what about a gate is news for people: a breaker that opened or closed, a hold, a budget that runs out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from limpet.core.gate import Gate, budget_left
from limpet.core.jobs.view import Entry

MARKS: Final = {1: 50, 2: 80, 4: 100}  # percent of a budget, by the bit of Gate.told that says so
SHORT: Final = 8  # and the bit for a budget with a waiting job


def news(before: Gate | None, after: Gate, now_ms: int) -> Iterator[Entry]:
    """The events of one atomic step that changed a gate, which the engine logs in the same step."""
    before = before if before is not None else Gate(after.rule)
    if after.opened > before.opened:
        yield _event("breaker.opened", now_ms, after, until_ms=after.open_until_ms)
    elif before.breaker_open and not after.breaker_open:
        yield _event("breaker.closed", now_ms, after)
    if after.held_until_ms > now_ms >= before.held_until_ms:
        yield _event("limit.held", now_ms, after, until_ms=after.held_until_ms)
    if after.rule.floor is not None and after.last_cut_token > before.last_cut_token:
        yield _event("limit.slowed", now_ms, after, pace=after.pace)
    cap = after.rule.cap
    if cap is not None and _level(before) != _level(after):
        spent, new = cap - budget_left(after, now_ms), _marks(before, after, cap, now_ms) & ~_announced(before, after)
        for bit, percent in MARKS.items():
            if new & bit:
                yield _event("budget.reached", now_ms, after, percent=percent, spent=spent, cap=cap)
        if new & SHORT:
            yield _event("budget.short", now_ms, after, wants=after.reserved_for, spent=spent, cap=cap)


def marked(before: Gate | None, after: Gate, now_ms: int) -> Gate:
    """The gate as it is kept after its news: of a budget each thing is told once in a period, while the cap stays.

    What jobs reserve and give back lets a busy budget pass its marks up and down all day.
    """
    cap, before = after.rule.cap, before or Gate(after.rule)
    if cap is None or _level(before) == _level(after):
        return after
    return replace(after, announced_marks=_marks(before, after, cap, now_ms))


def _level(gate: Gate) -> tuple[int | None, ...]:
    """What can be news about a budget."""
    return gate.rule.cap, gate.period_ms, gate.spent, gate.reserved_for


def _marks(before: Gate, after: Gate, cap: int, now_ms: int) -> int:
    spent = cap - budget_left(after, now_ms)
    reached = sum(bit for bit, percent in MARKS.items() if spent * 100 >= percent * cap)
    kept = _announced(before, after) if before.rule.cap == cap else 0
    return kept | reached | (SHORT if after.reserved_for else 0)


def _announced(before: Gate, after: Gate) -> int:
    """The marks that were announced before, in the period that is counted now."""
    return before.announced_marks if before.period_ms == after.period_ms else 0


def _event(kind: str, now_ms: int, gate: Gate, **facts: int) -> Entry:
    return Entry("event", now_ms, kind, data=msgspec.json.encode({"gate": gate.key, **facts}))
