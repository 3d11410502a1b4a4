"""Decides what about a gate is news for people: a breaker that opened or closed, a hold, a budget that runs out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.core.gate import Gate, left
from holdfast.core.view import Entry

MARKS: Final = (50, 80, 100)  # percent of a budget


def news(before: Gate | None, after: Gate, now_ms: int) -> Iterator[Entry]:
    """The events of one atomic step that changed a gate, which the engine logs in the same step."""
    before = before if before is not None else Gate(after.rule)
    if after.opened > before.opened:
        yield _event("breaker.opened", now_ms, after, until_ms=after.open_until_ms)
    elif before.breaker_open and not after.breaker_open:
        yield _event("breaker.closed", now_ms, after)
    if after.held_until_ms > now_ms >= before.held_until_ms:
        yield _event("limit.held", now_ms, after, until_ms=after.held_until_ms)
    if after.rule.floor is not None and after.cut_token > before.cut_token:
        yield _event("limit.slowed", now_ms, after, pace=after.pace)
    cap = after.rule.cap
    if cap is not None:
        was, spent = _spent(before, after), cap - left(after, now_ms)
        for percent in MARKS:
            if was * 100 < percent * cap <= spent * 100:
                yield _event("budget.reached", now_ms, after, percent=percent, spent=spent, cap=cap)
        if after.wants and not (before.wants and before.period_ms == after.period_ms):
            yield _event("budget.short", now_ms, after, wants=after.wants, spent=spent, cap=cap)


def _spent(before: Gate, after: Gate) -> int:
    """What had been spent before in the period that is counted now."""
    return before.spent if before.period_ms == after.period_ms else 0


def _event(kind: str, now_ms: int, gate: Gate, **facts: int) -> Entry:
    return Entry("event", now_ms, kind, data=msgspec.json.encode({"gate": gate.key, **facts}))
