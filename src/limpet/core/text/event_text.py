"""Decides how an event is told: in words for people, and as facts in the units that people use."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from limpet.core.gate import FOREVER_MS, FULL_PACE
from limpet.core.jobs.view import Entry
from limpet.core.limits.budget import base_of
from limpet.core.limits.unit import amount_text, public_amount, public_unit
from limpet.core.text.duration import iso

_AMOUNTS: Final = ("spent", "cap", "wants")


def facts_of(entry: Entry) -> dict[str, Any]:
    """What an event says beside its kind: amounts in their units, instants as text.

    What another release wrote and this one cannot read is left out.
    """
    try:
        found = msgspec.json.decode(entry.data, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    key = str(found.pop("gate", ""))
    unit, _, _ = base_of(key.removeprefix("limit:"))
    until_ms = found.pop("until_ms", None)
    for name in _AMOUNTS:
        if isinstance(found.get(name), int):
            found[name] = public_amount(unit, found[name])
    if unit:
        found["unit"] = unit
    if isinstance(found.get("pace"), int):
        found["percent"] = found.pop("pace") * 100 / FULL_PACE
    if isinstance(until_ms, int):
        found["until"] = None if until_ms >= FOREVER_MS else iso(until_ms)
    return {"key": key, **found} if key else found


def is_alarming(entry: Entry) -> bool:
    """Whether a person should look: money runs out, a breaker opened, a cause was escalated, an alert fires."""
    return entry.kind.startswith("budget.") or entry.kind in ("breaker.opened", "cause.escalated", "alert.firing")


def event_text(entry: Entry) -> str:
    """An event in one sentence.

    >>> event_text(Entry("event", 0, "breaker.closed", data=b'{"gate":"breaker:smtp"}'))
    'breaker smtp closed'
    """
    try:
        facts = msgspec.json.decode(entry.data, type=_Facts)
    except msgspec.MsgspecError:
        return entry.kind
    if entry.kind == "cause.escalated":
        why = f": {entry.reason}" if entry.reason else ""
        jobs = f"{facts.jobs:,} dead job{'' if facts.jobs == 1 else 's'}"
        return (
            f"{entry.actor} escalated {facts.error or facts.cause} of {facts.task} in {facts.queue} ({jobs}) "
            f"to {facts.assignee}{why}"
        )
    if entry.kind in ("alert.firing", "alert.resolved"):
        return f"alert {facts.key} {'fires' if entry.kind == 'alert.firing' else 'has resolved'}: {facts.text}"
    kind, _, name = facts.gate.partition(":")
    unit, period, base = base_of(name)
    until = "it is reset" if facts.until_ms >= FOREVER_MS else iso(facts.until_ms)
    match entry.kind:
        case "breaker.opened" if kind == "breaker":
            return f"breaker {name} opened until {until}"
        case "breaker.opened":
            return f"{kind} {name} is shut until {until}, as no money or quota is left there"
        case "breaker.closed" if kind == "breaker":
            return f"breaker {name} closed"
        case "breaker.closed":
            return f"{kind} {name} is open again"
        case "limit.held":
            return f"{kind} {name} is held back until {until}"
        case "limit.slowed":
            return f"{kind} {name} was pushed back, and goes at {percent_text(facts.pace)} of what is declared"
    unit = public_unit(unit)
    left = max(0, facts.cap - facts.spent)
    spent, free, cap, wants = (amount_text(unit, amount) for amount in (facts.spent, left, facts.cap, facts.wants))
    match entry.kind:
        case "budget.reached":
            return f"the budget {base!r} is at {facts.percent} %: {spent} of {cap} a {period} is spent or reserved"
        case "budget.short":
            return f"the budget {base!r} has {free} of {cap} a {period} left, and a job waits for {wants}"
    return entry.kind


def percent_text(pace: int) -> str:
    """A pace as people read it: thousandths as percent."""
    return f"{pace * 100 / FULL_PACE:g} %"


class _Facts(msgspec.Struct):
    """What events may say, as they are stored."""

    gate: str = ""
    until_ms: int = 0
    percent: int = 0
    spent: int = 0
    cap: int = 0
    wants: int = 0
    pace: int = 0
    cause: str = ""
    error: str = ""
    task: str = ""
    queue: str = ""
    jobs: int = 0
    key: str = ""
    text: str = ""
    assignee: str = ""
