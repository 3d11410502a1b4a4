"""Decides the public JSON form of what a store answers: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from limpet.core.errors import UsageError
from limpet.core.flows.refs import Given, filled
from limpet.core.gate import (
    FOREVER_MS,
    FULL_PACE,
    UNLIMITED,
    Gate,
    budget_left,
    counted,
    fastest_at_ms,
    max_concurrency,
    pace,
    room,
    tokens,
)
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.state import State
from limpet.core.jobs.view import AttemptView, JobView
from limpet.core.limits.period import ends_ms
from limpet.core.limits.unit import MICRO, MONEY, public_amount, public_unit
from limpet.core.records.job import note_record
from limpet.core.records.record import content
from limpet.core.text.duration import iso
from limpet.ops.waits import Asked

Shape = dict[str, Any]


def when(at_ms: int | None) -> str | None:
    """RFC 3339 text of an instant; None when there is none or it never comes."""
    return None if at_ms is None or at_ms >= FOREVER_MS else iso(at_ms)


def error_of(view: JobView) -> tuple[str, str, str]:
    """(type, message, cause) of what went wrong; what failed before a job succeeded is kept with its attempts."""
    return ("", "", "") if view.state is State.succeeded else (view.error_type, view.reason, view.cause)


def asked_shape(asked: Asked) -> Shape:
    """A job that waits for a person."""
    return {
        "id": id_text(asked.view.id),
        "task": asked.view.lane.task,
        "queue": asked.view.lane.queue,
        "name": asked.asking.name,
        "question": asked.asking.question,
        "until": when(asked.until_ms),
        "enqueued_at": when(asked.view.enqueued_at_ms),
        "args": content(asked.view.args),
    }


def claimed_shape(claimed: Claimed, attempts: Sequence[AttemptView] = ()) -> Shape:
    """What an agent needs to work on a job: the arguments, the token, and what came before."""
    return {
        "id": id_text(claimed.id),
        "token": claimed.token,
        "task": claimed.lane.task,
        "queue": claimed.lane.queue,
        "attempt": claimed.attempt,
        "attempts": claimed.policy.attempts,
        **({"meta": meta} if (meta := asked_meta(claimed.meta)) else {}),
        **_arguments(claimed),
        "inputs": {
            id_text(parent): {"failed": given.failed} if given.failed is not None else content(given.result)
            for parent, given in claimed.inputs.items()
        },
        "notes": [note_record(note).to_dict() for note in claimed.notes],
        "failed_before": [
            {"attempt": attempt.number, "outcome": attempt.outcome, "error": attempt.type, "message": attempt.message}
            for attempt in attempts
        ],
    }


def _arguments(claimed: Claimed) -> Shape:
    """The arguments with what the parents left where they refer to it; or why that cannot be."""
    args = content(claimed.args)
    try:
        given = Given.to(claimed)
        return {"args": args if given is None else content(msgspec.json.encode(filled(args, given)))}
    except UsageError as error:
        return {"args": args, "args_error": str(error)}


def budget_shape(gate: Gate, now_ms: int) -> Shape | None:
    """The cap of a gate and how much of it is left; dollars of money."""
    rule, unit = gate.rule, public_unit(gate.rule.unit)
    if rule.cap is None or rule.period is None:
        return None
    free = budget_left(gate, now_ms)
    return {
        "unit": unit,
        "cap": public_amount(unit, rule.cap),
        "spent": public_amount(unit, rule.cap - free),
        "left": public_amount(unit, free),
        "wanted": public_amount(unit, gate.reserved_for) if gate.reserved_for and room(gate, now_ms) <= 0 else None,
        "per": rule.period,
        "ends_at": when(ends_ms(rule.period, now_ms)),
    }


def tokens_level(gate: Gate, now_ms: int) -> int:
    """The tokens of a rate; of a held rate, the tokens that it will begin with."""
    return tokens(gate, max(now_ms, gate.held_until_ms))


def pace_shape(gate: Gate, now_ms: int) -> Shape | None:
    """How fast a gate goes, in percent of what is declared; None when nothing can slow it down."""
    rule = gate.rule
    if rule.floor is None and max_concurrency(gate, now_ms) is None:
        return None
    percent = 100 / FULL_PACE
    fastest = fastest_at_ms(gate)
    return {
        "percent": round(pace(gate, now_ms) * percent, 1),
        "fastest_at": when(fastest) if fastest > now_ms else None,
        "adaptive": rule.floor is not None,
        "floor": None if rule.floor is None else round(rule.floor * percent, 1),
        "ceiling": None if rule.floor is None else round(gate.ceiling * percent, 1),
    }


def gate_shape(gate: Gate, now_ms: int, waiting: int = 0) -> Shape:
    """A gate's rule and level, and how many jobs it stops."""
    rule = gate.rule
    return {
        "key": gate.key,
        "set_by": "code" if gate.declared else "operator",
        "free": None if (free := room(gate, now_ms)) >= UNLIMITED else _amount(rule.unit, free),
        "concurrency": rule.concurrency,
        "used": gate.used,
        "depth": rule.depth,
        "tenant_depth": rule.tenant_depth,
        "unit": public_unit(rule.unit),
        "per_second": None if rule.interval_us is None else _amount(rule.unit, 1_000_000 / rule.interval_us),
        "burst": _amount(rule.unit, rule.burst) if rule.interval_us is not None else None,
        "tokens": None if rule.interval_us is None else _amount(rule.unit, tokens_level(gate, now_ms)),
        "budget": budget_shape(gate, now_ms),
        "pace": pace_shape(gate, now_ms),
        "waiting": waiting,
        "held_until": when(gate.held_until_ms) if gate.held_until_ms > now_ms else None,
        "shut": gate.breaker_open,
        "shut_until": when(gate.open_until_ms or None),
        "paused": None
        if gate.paused is None
        else {"by": gate.paused.by, "reason": gate.paused.reason, "at": when(gate.paused.at_ms)},
        "draining": gate.draining,
    }


def _amount(unit: str, stored: float) -> float:
    """A rate or a level as people read it."""
    return round(stored / MICRO if unit == MONEY else stored, 6)


def breaker_state(gate: Gate, now_ms: int) -> str:
    """closed, open or half-open."""
    if not gate.open_until_ms:
        return "closed"
    return "open" if gate.open_until_ms > now_ms else "half-open"


def breaker_shape(gate: Gate, now_ms: int) -> Shape:
    """A breaker's state and what it has counted."""
    failures, calls = counted(gate, now_ms)
    return {
        "breaker": gate.key.removeprefix("breaker:"),
        "state": breaker_state(gate, now_ms),
        "open_until": when(gate.open_until_ms or None),
        "by_hand": gate.by_hand,
        "probe_under_way": bool(gate.probe_token),
        "recent_failures": failures,
        "recent_calls": calls,
        "opened": gate.opened,
    }
