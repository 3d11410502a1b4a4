"""Decides how to say why a gate stops a job: pauses, holds, slots, rates, budgets and breakers."""

from __future__ import annotations

from collections.abc import Iterator

from limpet.core.gate import (
    FOREVER_MS,
    FULL_PACE,
    Gate,
    budget_left,
    fastest_at_ms,
    max_concurrency,
    opens_at_ms,
    pace,
    room,
    slots,
    tokens,
)
from limpet.core.jobs.view import JobView
from limpet.core.limits.budget import base_of, raising, this
from limpet.core.limits.period import Period, ends_ms
from limpet.core.limits.unit import amount_text, public_amount, public_unit
from limpet.core.records.explanation import Reason
from limpet.core.records.record import instant
from limpet.core.text.duration import iso, text_of_ms
from limpet.core.text.event_text import percent_text
from limpet.ops.reason import ago, when_text, when_words


def gate_reasons(gate: Gate, view: JobView, now_ms: int) -> Iterator[Reason]:
    """Every way in which this gate stops the job now."""
    what = gate_name(gate)
    rule, facts = gate.rule, {"key": gate.key}
    if gate.paused is not None:
        why = f" because: {gate.paused.reason}" if gate.paused.reason else ""
        by = gate.paused.by or "someone"
        data: dict[str, object] = {**facts, "by": by, "reason": gate.paused.reason, "since": iso(gate.paused.at_ms)}
        code = f"{gate.key.partition(':')[0]}_paused"
        yield Reason(code, f"{what} is paused by {by} {ago(gate.paused.at_ms, now_ms)}{why}", None, data)
    if gate.held_until_ms > now_ms:
        text = f"{what} is held back (the provider asked for it) and opens {when_words(gate.held_until_ms, now_ms)}"
        yield Reason("held", text, instant(gate.held_until_ms), facts)
    slower = slower_text(gate, now_ms)
    if rule.concurrency is None and max_concurrency(gate, now_ms) is not None and gate.used >= slots(gate, now_ms):
        more_at_ms = opens_at_ms(gate, now_ms)
        more = "when one of them ends" if more_at_ms is None else when_words(more_at_ms, now_ms)
        text = f"{what} starts slowly after it was held back: {gate.used} run, and one more may {more}"
        yield Reason("slow", text, None if more_at_ms is None else instant(more_at_ms), {**facts, "used": gate.used})
    if rule.concurrency is not None and gate.used >= slots(gate, now_ms):
        text = f"{what} has {gate.used} of {rule.concurrency} slots taken" + (f", and goes {slower}" if slower else "")
        climbed_ms = opens_at_ms(gate, now_ms) if gate.used < rule.concurrency else None
        until = None if climbed_ms is None else instant(climbed_ms)
        yield Reason("concurrency", text, until, {**facts, "used": gate.used, "concurrency": rule.concurrency})
    if rule.interval_us is not None and tokens(gate, now_ms) < 1:
        # The rate alone decides when the next token comes; the other levels have reasons of their own.
        at_ms = -(-(gate.full_at_us - (rule.burst - 1) * rule.interval_us) // 1000)
        frees = f"it frees {when_words(at_ms, now_ms)}" + (f"; it goes {slower}" if slower else "")
        yield Reason("rate", f"{what} has no room; {frees}", instant(at_ms), facts)
    if rule.cap is not None and rule.period is not None:
        yield from _budget(gate, what, view.cost_in(rule.unit), rule.cap, rule.period, now_ms)
    if gate.open_until_ms:
        yield _breaker(gate, what, now_ms)


def _budget(gate: Gate, what: str, cost: int, cap: int, period: Period, now_ms: int) -> Iterator[Reason]:
    """Whether the job has to wait for money, and till when; a job above the cap waits for ever."""
    unit, needs, free = public_unit(gate.rule.unit), max(1, cost), budget_left(gate, now_ms)
    data: dict[str, object] = {
        "key": gate.key,
        "unit": unit,
        "cap": public_amount(unit, cap),
        "left": public_amount(unit, free),
        "needs": public_amount(unit, cost),
        "per": period,
    }
    wants, whole = amount_text(unit, needs), amount_text(unit, cap)
    if needs > cap:
        text = f"it needs {wants}, and {what} is {whole} a {period}: it never fits"
        yield Reason("never_fits", f"{text}; cancel it, or raise the budget: {raising(gate.rule, needs)}", None, data)
        return
    if is_blocked(gate, now_ms):
        first = f"a job that came first needs {amount_text(unit, gate.reserved_for)}, more than all of it"
        until = f"before it is cancelled and the budget reset ({unblocking(gate)}), or the budget raised"
        raised = raising(gate.rule, gate.reserved_for)
        text = f"{what} is {whole} a {period}, and {first}; no job passes it {until}: {raised}"
        yield Reason("budget", text, None, data)
        return
    ends_at_ms = ends_ms(period, now_ms)
    has = f"{what} has {amount_text(unit, max(0, free))} of {whole} left {this(period)}"
    again = f"it continues {when_words(ends_at_ms, now_ms)}, or when running jobs cost less than they reserved"
    if free < needs:
        yield Reason("budget", f"{has}; this job needs {wants}; {again}", instant(ends_at_ms), data)
    elif free < gate.reserved_for:
        first = f"a job that came first needs {amount_text(unit, gate.reserved_for)}, and no other job passes it"
        yield Reason("budget", f"{has}; {first}; {again}", instant(ends_at_ms), data)


def is_blocked(gate: Gate, now_ms: int) -> bool:
    """Whether the first job in line needs more than the whole budget: no job passes it, and waiting does not help."""
    return gate.rule.cap is not None and gate.reserved_for > gate.rule.cap and room(gate, now_ms) <= 0


def unblocking(gate: Gate) -> str:
    """The command that lets others pass when such a job is gone."""
    return f"limpet breakers reset {gate.key}"


def _breaker(gate: Gate, what: str, now_ms: int) -> Reason:
    data: dict[str, object] = {"key": gate.key, "opened": gate.opened}
    if not gate.key.startswith("breaker:") and now_ms < gate.open_until_ms < FOREVER_MS:
        probe = f"one job probes {when_words(gate.open_until_ms, now_ms)}"
        text = f"{what} is closed, because no money or quota is left there; {probe}"
        return Reason("spent", text, instant(gate.open_until_ms), data)
    if gate.open_until_ms >= FOREVER_MS:
        return Reason("breaker_open", f"{what} is open until it is reset", None, data)
    if gate.open_until_ms > now_ms:
        text = f"{what} is open; one job is let through as a probe {when_words(gate.open_until_ms, now_ms)}"
        return Reason("breaker_open", text, instant(gate.open_until_ms), data)
    if gate.probe_token:
        return Reason("breaker_probe", f"{what} is half-open and its probe is under way", None, data)
    return Reason("breaker_half_open", f"{what} is half-open: the next job claimed is its probe", None, data)


def gate_name(gate: Gate) -> str:
    """The same for a gate whose rule is known: a budget, or the bucket of a limit."""
    rule = gate.rule
    unit, period, base = base_of(rule.key.removeprefix("limit:"))
    if rule.cap is not None and period:
        return f"the budget {base!r}"
    if rule.unit and rule.unit == unit:
        return f"limit {base} ({unit.replace('_', ' ')})"
    return gate_words(rule.key)


def gate_words(key: str) -> str:
    """How people call the gate with this key."""
    kind, _, name = key.partition(":")
    return "everything" if kind == "all" else f"{kind} {name}"


def slower_text(gate: Gate, now_ms: int) -> str:
    """How much slower a gate goes than its rule says, and until when; empty when it does not."""
    rule, speed = gate.rule, pace(gate, now_ms)
    if speed >= FULL_PACE or (rule.floor is None and max_concurrency(gate, now_ms) is None):
        return ""
    at_ms, most = fastest_at_ms(gate), FULL_PACE if rule.floor is None else max(rule.floor, gate.ceiling)
    why = [f"{percent_text(most)} in {text_of_ms(at_ms - now_ms)}"] if at_ms > now_ms else []
    if most < FULL_PACE:
        why.append("all that the provider allows")
    return f"at {percent_text(speed)} ({', '.join(why)})"


def opens_text(gate: Gate, now_ms: int) -> str:
    """When a shut gate opens, for tables: an instant, or what it waits for."""
    if gate.paused is not None:
        return "when resumed"
    at_ms = opens_at_ms(gate, now_ms)
    if at_ms is None:
        return "when reset" if gate.open_until_ms >= FOREVER_MS else "when a job ends"
    return when_text(at_ms, now_ms)
