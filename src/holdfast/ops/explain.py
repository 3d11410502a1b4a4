"""Decides how to say why a job is not running (or what became of it), from the facts a store gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from holdfast.core.budget import base_of
from holdfast.core.duration import iso, text_of_ms
from holdfast.core.gate import FOREVER_MS, Gate, left, opens_at_ms, tokens
from holdfast.core.ids import id_text
from holdfast.core.lease import SessionView
from holdfast.core.period import Period, ends_ms
from holdfast.core.state import State
from holdfast.core.steps import APPROVAL, SLEEP, asking_of, waiting_of
from holdfast.core.unit import amount_text, public_amount, public_unit
from holdfast.core.view import AttemptView, JobView, Standing

_THIS: Final = {"day": "today", **{name: f"this {name}" for name in ("minute", "hour", "week", "month")}}
MOST_PARENTS: Final = 10  # that are named one by one; a join may wait for thousands


@dataclass(frozen=True)
class Reason:
    """One cause: a stable `code`, a sentence, the instant it ends by itself (if it does), and the facts."""

    code: str
    text: str
    until: datetime | None = None
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Why a job is where it is; `str()` says it in words, most decisive reason first."""

    id: str
    state: State
    task: str
    queue: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        head = f"Job {self.id} ({self.task}, queue {self.queue}) is {self.state.value}"
        if len(self.reasons) == 1:
            return f"{head}: {self.reasons[0].text}."
        return "\n".join([f"{head}:", *(f"  - {reason.text}" for reason in self.reasons)])


def explain(
    standing: Standing,
    *,
    now_ms: int,
    attempts: Sequence[AttemptView] = (),
    sessions: Sequence[SessionView] = (),
) -> Explanation:
    """Say in words where the job stands at `now_ms`."""
    view = standing.view
    reasons: Iterator[Reason]
    if view.state in (State.succeeded, State.cancelled, State.dead):
        reasons = _finished(view, attempts)
    elif view.state is State.running:
        reasons = _running(view, now_ms)
    else:
        reasons = _waiting(standing, attempts, sessions, now_ms)
    return Explanation(id_text(view.id), view.state, view.lane.task, view.lane.queue, tuple(reasons))


def instant(ms: int | None) -> datetime | None:
    """The public form of an instant; None for one that never comes."""
    return None if ms is None or ms >= FOREVER_MS else datetime.fromtimestamp(ms / 1000, UTC)


def _when(at_ms: int, now_ms: int) -> str:
    if at_ms <= now_ms:
        return "now"
    if at_ms >= FOREVER_MS:
        return "when someone starts it"
    return f"in {text_of_ms(at_ms - now_ms)} ({iso(at_ms)})"


def _ago(at_ms: int, now_ms: int) -> str:
    return f"{text_of_ms(max(0, now_ms - at_ms))} ago"


def _finished(view: JobView, attempts: Sequence[AttemptView]) -> Iterator[Reason]:
    at_ms = view.finished_at_ms or view.due_at_ms
    data: dict[str, object] = {"finished_at": iso(at_ms)}
    if view.state is State.succeeded:
        yield Reason("succeeded", f"it finished at {iso(at_ms)}, on attempt {view.attempt}", None, data)
    elif view.state is State.cancelled:
        why = f": {view.reason}" if view.reason else ""
        yield Reason("cancelled", f"it was cancelled at {iso(at_ms)}{why}", None, {**data, "reason": view.reason})
    else:
        last = attempts[-1] if attempts else None
        kind = last.kind if last is not None else None
        words = "permanent error, not worth another attempt" if kind == "permanent" else f"after attempt {view.attempt}"
        if kind == "lost":
            words = f"its worker died under it {view.lost} times"
        error = f": {view.error_type}: {view.reason}" if view.error_type else f": {view.reason}" if view.reason else ""
        yield Reason(
            "dead",
            f"it is in the dead-letter queue since {iso(at_ms)} ({words}){error}; retry or discard it",
            None,
            {**data, "cause": view.cause, "error_type": view.error_type, "reason": view.reason, "kind": kind},
        )


def _running(view: JobView, now_ms: int) -> Iterator[Reason]:
    since_ms = view.claimed_at_ms or now_ms
    yield Reason(
        "running",
        f"it runs on {view.session or 'an unknown worker'} since {iso(since_ms)} ({text_of_ms(now_ms - since_ms)}), "
        f"attempt {view.attempt} of {view.policy.attempts}",
        None,
        {"session": view.session, "since": iso(since_ms), "attempt": view.attempt},
    )
    if view.cancel_requested:
        yield Reason("cancelling", "it was asked to stop and has not ended yet", None, {"reason": view.reason})


def _waiting(
    standing: Standing, attempts: Sequence[AttemptView], sessions: Sequence[SessionView], now_ms: int
) -> Iterator[Reason]:
    view = standing.view
    yield from _parents(standing)
    if view.due_at_ms > now_ms:
        yield _suspended(view, now_ms) or _due(view, attempts, now_ms)
    shut = [reason for gate in standing.gates for reason in _gate(gate, view, now_ms)]
    if view.state is State.ready:
        yield from shut
    else:
        # Levels change before the job is due; what is known to last longer stays, and so does a missing worker.
        yield from (reason for reason in shut if _outlasts(reason, view.due_at_ms))
    yield from _no_worker(standing, sessions)
    if view.lost:
        yield Reason(
            "suspect",
            f"{view.lost} workers were lost while they ran it, so it starts only in a free slot of its own",
            None,
            {"lost": view.lost},
        )
    if view.state is State.ready:
        yield _position(standing, free=not shut)
    if view.expires_at_ms is not None:
        yield Reason(
            "expires",
            f"it is cancelled if it has not started {_when(view.expires_at_ms, now_ms)}",
            instant(view.expires_at_ms),
        )


def _outlasts(reason: Reason, due_at_ms: int) -> bool:
    """True for a pause, a breaker that someone must reset, and whatever ends by itself after the job is due."""
    due = instant(due_at_ms)
    if reason.until is not None:
        return due is None or reason.until > due
    return reason.code.endswith("paused") or reason.code in ("breaker_open", "never_fits")


def _parents(standing: Standing) -> Iterator[Reason]:
    # Those that have failed first: they are what somebody has to look at.
    found = sorted(standing.parents, key=lambda each: each[1] not in (State.dead, State.cancelled))
    if len(found) > MOST_PARENTS:
        counts = Counter(state.value for _, state in found)
        words = ", ".join(f"{count:,} {state}" for state, count in counts.items())
        yield Reason("parents", f"it waits for {len(found):,} parents ({words})", None, {"parents": dict(counts)})
    for parent, state in found[:MOST_PARENTS]:
        name = id_text(parent)
        data: dict[str, object] = {"parent": name, "state": state.value}
        if state in (State.dead, State.cancelled):
            text = f"its parent {name} is {state.value}; it waits until someone retries the parent or cancels this job"
            yield Reason("parent_failed", text, None, data)
        else:
            yield Reason("parent", f"it waits for parent {name} ({state.value})", None, data)


def _suspended(view: JobView, now_ms: int) -> Reason | None:
    """What a suspended job waits for: the end of a sleep, an event, or a person."""
    waiting = waiting_of(view.notes)
    if view.state is not State.scheduled or waiting is None or waiting.due_at_ms != view.due_at_ms:
        return None
    until, event = instant(waiting.due_at_ms), waiting.event
    when = _when(waiting.due_at_ms, now_ms)
    if event.startswith(SLEEP):
        name = event.removeprefix(SLEEP)
        return Reason("sleeping", f"it sleeps ({name}) and goes on {when}", until, {"name": name})
    end = "" if until is None else f"; its time is over {when}"
    if event.startswith(APPROVAL):
        name = event.removeprefix(APPROVAL)
        question = next((one.question for one in asking_of(view.notes) if one.event == event), "")
        text = f"it waits for a person to approve or reject{f': {question}' if question else f' {name!r}'}{end}"
        return Reason("approval", text, until, {"name": name, "question": question})
    return Reason("event", f"it waits for the event {event!r}{end}", until, {"event": event})


def _due(view: JobView, attempts: Sequence[AttemptView], now_ms: int) -> Reason:
    when, until = _when(view.due_at_ms, now_ms), instant(view.due_at_ms)
    last = attempts[-1] if attempts else None
    if last is not None and last.outcome == "snoozed":
        why = f": {last.message}" if last.message else ""
        return Reason("snoozed", f"it asked to run again {when}{why}", until, {"times": view.held})
    if view.attempt and (view.error_type or view.reason):
        error = f"{view.error_type}: {view.reason}" if view.error_type else view.reason
        text = f"attempt {view.attempt} of {view.policy.attempts} failed ({error}); the next one is due {when}"
        data: dict[str, object] = {"attempt": view.attempt, "error_type": view.error_type, "reason": view.reason}
        return Reason("retry", text, until, data)
    return Reason("scheduled", f"it is scheduled to start {when}", until)


def _gate(gate: Gate, view: JobView, now_ms: int) -> Iterator[Reason]:
    """Every way in which this gate stops the job now."""
    what = gate_name(gate)
    rule, facts = gate.rule, {"gate": gate.key}
    if gate.paused is not None:
        why = f" because: {gate.paused.reason}" if gate.paused.reason else ""
        by = gate.paused.by or "someone"
        data: dict[str, object] = {**facts, "by": by, "reason": gate.paused.reason, "since": iso(gate.paused.at_ms)}
        code = f"{gate.key.partition(':')[0]}_paused"
        yield Reason(code, f"{what} is paused by {by} {_ago(gate.paused.at_ms, now_ms)}{why}", None, data)
    if gate.held_until_ms > now_ms:
        text = f"{what} is held back (the other side asked for it) and opens {_when(gate.held_until_ms, now_ms)}"
        yield Reason("held", text, instant(gate.held_until_ms), facts)
    if rule.concurrency is not None and gate.used >= rule.concurrency:
        text = f"{what} has {gate.used} of {rule.concurrency} slots taken"
        yield Reason("concurrency", text, None, {**facts, "used": gate.used, "concurrency": rule.concurrency})
    if rule.interval_us is not None and tokens(gate, now_ms) < 1:
        # The rate alone decides when the next token comes; the other levels have reasons of their own.
        at_ms = -(-(gate.full_at_us - (rule.burst - 1) * rule.interval_us) // 1000)
        yield Reason("rate", f"{what} has no room; it frees {_when(at_ms, now_ms)}", instant(at_ms), facts)
    if rule.cap is not None and rule.period is not None:
        yield from _budget(gate, what, view.cost_in(rule.unit), rule.cap, rule.period, now_ms)
    if gate.open_until_ms:
        yield _breaker(gate, what, now_ms)


def _budget(gate: Gate, what: str, cost: int, cap: int, period: Period, now_ms: int) -> Iterator[Reason]:
    """Whether the job has to wait for money, and till when; one that is too dear waits for ever."""
    unit, needs, free = public_unit(gate.rule.unit), max(1, cost), left(gate, now_ms)
    data: dict[str, object] = {
        "gate": gate.key,
        "unit": unit,
        "cap": public_amount(unit, cap),
        "left": public_amount(unit, free),
        "needs": public_amount(unit, cost),
        "per": period,
    }
    wants, whole = amount_text(unit, needs), amount_text(unit, cap)
    if needs > cap:
        fix = f"holdfast limits set {base_of(gate.key.removeprefix('limit:'))[2]} --budget {unit}=AMOUNT/{period}"
        text = (
            f"it needs {wants}, and {what} is {whole} a {period}: it never fits; cancel it, or raise the budget: {fix}"
        )
        yield Reason("never_fits", text, None, data)
        return
    ends_at_ms = ends_ms(period, now_ms)
    has = f"{what} has {amount_text(unit, max(0, free))} of {whole} left {_THIS[period]}"
    again = f"it goes on {_when(ends_at_ms, now_ms)}, or when running jobs cost less than they reserved"
    if free < needs:
        yield Reason("budget", f"{has}; this job needs {wants}; {again}", instant(ends_at_ms), data)
    elif free < gate.wants:
        first = f"a job that came first needs {amount_text(unit, gate.wants)}, and nobody passes it"
        yield Reason("budget", f"{has}; {first}; {again}", instant(ends_at_ms), data)


def _breaker(gate: Gate, what: str, now_ms: int) -> Reason:
    data: dict[str, object] = {"gate": gate.key, "opened": gate.opened}
    if not gate.key.startswith("breaker:") and now_ms < gate.open_until_ms < FOREVER_MS:
        text = f"{what} is shut, as no money or quota is left there; one job probes {_when(gate.open_until_ms, now_ms)}"
        return Reason("spent", text, instant(gate.open_until_ms), data)
    if gate.open_until_ms >= FOREVER_MS:
        return Reason("breaker_open", f"{what} is open until someone resets it", None, data)
    if gate.open_until_ms > now_ms:
        text = f"{what} is open; one job is let through as a probe {_when(gate.open_until_ms, now_ms)}"
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


def _no_worker(standing: Standing, sessions: Sequence[SessionView]) -> Iterator[Reason]:
    lane = standing.view.lane
    if standing.able:
        return
    if not sessions and not standing.knows_task:
        yield Reason("no_workers", f"no worker is alive (task {lane.task})", None, {"task": lane.task, "workers": 0})
    elif not standing.knows_task:
        data: dict[str, object] = {"task": lane.task, "workers": len(sessions)}
        yield Reason("unknown_task", f"no live worker knows task {lane.task}", None, data)
    elif standing.able_without_needs:
        missing = _missing(lane.needs, sessions)
        text = f"no live worker has {'capability' if len(missing) == 1 else 'all capabilities'} {', '.join(missing)}"
        yield Reason("capability", text, None, {"needs": list(lane.needs), "missing": missing})
    else:
        text = f"no live worker that knows task {lane.task} serves queue {lane.queue}"
        yield Reason("unserved_queue", text, None, {"queue": lane.queue, "task": lane.task})


def _missing(needs: Sequence[str], sessions: Sequence[SessionView]) -> list[str]:
    """The needs that no live session has; all of them when they only never come together."""
    offered = {capability for session in sessions for capability in session.serves.capabilities}
    return [need for need in needs if need not in offered] or list(needs)


def _position(standing: Standing, *, free: bool) -> Reason:
    count = f"{standing.ahead}{' or more' if standing.ahead_capped else ''}"
    data: dict[str, object] = {"ahead": standing.ahead, "capped": standing.ahead_capped, "lane": standing.lane_state}
    if standing.ahead:
        jobs = "job is" if standing.ahead == 1 else "jobs are"
        return Reason("position", f"{count} {jobs} ahead of it in its lane", None, data)
    if free and standing.able:
        return Reason("next", "it is first in its lane and starts when a worker has a free slot", None, data)
    return Reason("position", "it is first in its lane", None, data)


def when_text(at_ms: int, now_ms: int) -> str:
    """An instant to come, for tables; nothing for one that never comes."""
    return "" if at_ms >= FOREVER_MS else "now" if at_ms <= now_ms else f"in {text_of_ms(at_ms - now_ms)}"


def opens_text(gate: Gate, now_ms: int) -> str:
    """When a shut gate opens, for tables: an instant, or what it waits for."""
    if gate.paused is not None:
        return "when resumed"
    at_ms = opens_at_ms(gate, now_ms)
    if at_ms is None:
        return "when reset" if gate.open_until_ms >= FOREVER_MS else "when a job ends"
    return when_text(at_ms, now_ms)
