"""Decides the public JSON form of what a store answers: the same for `--json`, HTTP and MCP."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from limpet.core.endings.refusal import about
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
from limpet.core.jobs import minute
from limpet.core.jobs.ids import id_text
from limpet.core.jobs.lease import Claimed, SessionView
from limpet.core.jobs.meta import asked_meta
from limpet.core.jobs.state import STATES, State
from limpet.core.jobs.view import AttemptView, CauseView, Counts, Entry, Finding, JobView, QueueView
from limpet.core.limits.period import ends_ms
from limpet.core.limits.unit import MICRO, MONEY, public_amount, public_unit
from limpet.core.records.job import JobDetail, JobRecord, note_record
from limpet.core.records.record import content
from limpet.core.text.duration import iso
from limpet.core.text.event_text import event_text, facts_of
from limpet.ops.bulk import BulkReport
from limpet.ops.code import capabilities
from limpet.ops.retention import Kept
from limpet.ops.waits import Asked

Shape = dict[str, Any]


def when(at_ms: int | None) -> str | None:
    """RFC 3339 text of an instant; None when there is none or it never comes."""
    return None if at_ms is None or at_ms >= FOREVER_MS else iso(at_ms)


def error_of(view: JobView) -> tuple[str, str, str]:
    """(type, message, cause) of what went wrong; what failed before a job succeeded is kept with its attempts."""
    return ("", "", "") if view.state is State.succeeded else (view.error_type, view.reason, view.cause)


def job_line(view: JobView) -> Shape:
    """A job as one line of a list."""
    return JobRecord.of(view).to_dict()


def job_whole(view: JobView, attempts: Iterable[AttemptView] = ()) -> Shape:
    """A job with everything stored about it."""
    return JobDetail.whole(view, attempts).to_dict()


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


def queue_shape(view: QueueView) -> Shape:
    """A queue in one look."""
    gate = view.gate
    return {
        "queue": view.queue,
        **{state.value: view.counts.get(state, 0) for state in STATES},
        "oldest_ready_at": when(view.oldest_ready_at_ms),
        "paused": None
        if gate is None or gate.paused is None
        else {"by": gate.paused.by, "reason": gate.paused.reason, "at": when(gate.paused.at_ms)},
        "draining": gate is not None and gate.draining,
        "concurrency": None if gate is None else gate.rule.concurrency,
        "depth": None if gate is None else gate.rule.depth,
        "tenant_depth": None if gate is None else gate.rule.tenant_depth,
    }


def kept_shape(kept: Kept) -> Shape:
    """How long finished jobs of a queue stay, in seconds; null = for ever, left out = as for all queues."""
    return {
        "queue": kept.queue,
        "keep": {state.value: None if ms is None else ms / 1000 for state, ms in kept.states.items()},
        "set_by": {state.value: "operator" if state in kept.set_by_operator else "code" for state in kept.states},
    }


def stuck_places(view: SessionView) -> int:
    """Places of a worker that do not come back: handlers past their hard timeout, processes that cannot be ended."""
    info = content(view.info)
    found = info.get("stuck") if isinstance(info, dict) else None
    return found if isinstance(found, int) else 0


def session_shape(view: SessionView) -> Shape:
    """A live worker or agent."""
    serves = view.serves
    return {
        "session": view.session,
        "queues": None if serves.queues is None else list(serves.queues),
        "tasks": None if serves.tasks is None else list(serves.tasks),
        "capabilities": capabilities(view),
        "code_version": about(view).code_version,
        "running": view.running,
        "idle": view.idle,
        "started_at": when(view.started_at_ms),
        "beat_at": when(view.beat_at_ms),
        "deadline_at": when(view.deadline_at_ms),
        "silent_ms": view.silent_ms,
        "info": _about(view.info),
    }


def _about(info: bytes) -> Any:
    """What it says about itself, but for the histograms of its tasks: `tasks` and `stats` make figures of them."""
    found = content(info)
    return {name: said for name, said in found.items() if name != minute.FIELD} if isinstance(found, dict) else found


def cause_shape(view: CauseView) -> Shape:
    """Dead jobs of one origin."""
    return {
        "cause": view.cause,
        "count": view.count,
        "error": view.type,
        "message": view.message,
        "task": view.task,
        "queue": view.queue,
        "first_at": when(view.first_at_ms),
        "last_at": when(view.last_at_ms),
        "sample": id_text(view.sample),
    }


def counts_shape(counts: Counts) -> Shape:
    """The counters, which sum up."""
    return {
        **{state.value: counts.total(state) for state in STATES},
        "ever": {
            "enqueued": counts.enqueued,
            "succeeded": counts.succeeded,
            "cancelled": counts.cancelled,
            "discarded": counts.discarded,
            "leases_lost": counts.lost,
            "late_ends_refused": counts.stale,
        },
    }


def report_shape(report: BulkReport) -> Shape:
    """What a bulk action met and did."""
    return {
        "action": report.action,
        "matched": report.matched,
        "done": report.done,
        "dry_run": report.dry_run,
        "answers": report.answers,
        "holders": report.holders,
        "samples": [job_line(view) for view in report.samples],
        "made": report.made,
        "edits": list(report.edits),
        "notes": list(report.notes),
    }


def finding_shape(finding: Finding) -> Shape:
    """One thing doctor says."""
    return {"level": finding.level, "code": finding.code, "text": finding.text, "fix": finding.fix or None}


def event_shape(entry: Entry) -> Shape:
    """One event: what became of a gate, in words and as facts."""
    return {
        "seq": entry.seq,
        "at": when(entry.at_ms),
        "kind": entry.kind,
        "text": event_text(entry),
        **facts_of(entry),
    }


def entry_shape(entry: Entry) -> Shape:
    """One line of a log."""
    return {
        "seq": entry.seq,
        "at": when(entry.at_ms),
        "kind": entry.kind,
        "actor": entry.actor,
        "job": None if entry.job is None else id_text(entry.job),
        "reason": entry.reason or None,
        "data": content(entry.data),
    }
